// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Threads of the C++ library that wait for loops. The caller's thread works too. A loop that begins while
/// another one has the threads, or within one, runs on its caller's alone.
class ThreadPool final : public Executor {
 public:
  /// So many threads in all, the caller's among them; 0: one a processor. Throws std::system_error where a
  /// thread cannot be started.
  explicit ThreadPool(std::size_t threads = 0) {
    const std::size_t all = threads != 0 ? threads : std::max(std::thread::hardware_concurrency(), 1U);
    workers_.reserve(all - 1);
    try {
      for (std::size_t thread = 1; thread < all; ++thread) {
        workers_.emplace_back([this, thread] { work(thread); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() { stop(); }

  std::size_t threads() const override { return workers_.size() + 1; }

  void run(std::size_t parts, std::size_t threads, Body body) const override {
    const std::unique_lock<std::mutex> alone(busy_, std::try_to_lock);
    if (!alone.owns_lock() || threads <= 1 || workers_.empty()) {
      return SerialExecutor().run(parts, 1, body);
    }
    Loop loop{body, parts, std::min(threads, workers_.size() + 1)};
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      loop_ = &loop;
      ++round_;
      finished_ = 0;
    }
    begin_.notify_all();
    loop.take_parts(0);
    std::unique_lock<std::mutex> lock(mutex_);
    end_.wait(lock, [this] { return finished_ == workers_.size(); });
  }

 private:
  struct Loop {
    Body body;
    std::size_t parts;
    std::size_t threads;
    std::atomic<std::size_t> next = 0;

    void take_parts(std::size_t thread) {
      if (thread >= threads) return;
      for (std::size_t part = next++; part < parts; part = next++) body(part, thread);
    }
  };

  void work(std::size_t thread) {
    std::size_t done = 0;
    for (;;) {
      Loop* loop = nullptr;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        begin_.wait(lock, [&] { return stopped_ || round_ != done; });
        if (stopped_) return;
        done = round_;
        loop = loop_;
      }
      loop->take_parts(thread);
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++finished_;
      }
      end_.notify_one();
    }
  }

  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    begin_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  std::vector<std::thread> workers_;
  mutable std::mutex busy_;  ///< held by whose loop has the workers
  mutable std::mutex mutex_;
  mutable std::condition_variable begin_;
  mutable std::condition_variable end_;
  mutable Loop* loop_ = nullptr;
  mutable std::size_t round_ = 0;
  mutable std::size_t finished_ = 0;  ///< workers that are through with this round
  bool stopped_ = false;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
