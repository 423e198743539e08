// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

#include "topksoftmax/parallel/executor.hpp"

namespace topksoftmax::testing {

/// An executor as an engine may have its own: the parts are dealt out from the last to the first, each thread
/// takes every n-th.
class ReversedExecutor final : public Executor {
 public:
  explicit ReversedExecutor(std::size_t threads = 3) : threads_(threads) {}

  std::size_t threads() const override { return threads_; }

  std::size_t grain() const override { return std::size_t{16} << 10; }  // small layers are shared too

  void run(std::size_t parts, std::size_t threads, Body body) const override {
    const std::size_t count = std::min(threads, threads_);
    std::vector<std::thread> running;
    for (std::size_t thread = 0; thread < count; ++thread) {
      running.emplace_back([=] {
        for (std::size_t part = thread; part < parts; part += count) body(parts - 1 - part, thread);
      });
    }
    for (std::thread& thread : running) thread.join();
  }

 private:
  std::size_t threads_;
};

/// Counts the loops that it is given.
class CountedExecutor final : public Executor {
 public:
  std::size_t threads() const override { return executor_.threads(); }
  std::size_t grain() const override { return executor_.grain(); }
  void run(std::size_t parts, std::size_t threads, Body body) const override {
    ++loops_;
    executor_.run(parts, threads, body);
  }
  std::size_t loops() const { return loops_; }

 private:
  ReversedExecutor executor_;
  mutable std::size_t loops_ = 0;
};

}  // namespace topksoftmax::testing
