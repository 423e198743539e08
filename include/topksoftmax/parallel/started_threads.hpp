// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Threads that are started for each loop and end with it, one a processor: nothing is kept between loops.
/// Good enough for builds; for queries a ThreadPool saves the starting.
class StartedThreads final : public Executor {
 public:
  std::size_t threads() const override { return std::max(std::thread::hardware_concurrency(), 1U); }

  void run(std::size_t parts, std::size_t threads, Body body) const override {
    ThreadPool(threads).run(parts, threads, body);
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE
