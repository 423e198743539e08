// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/polling.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Threads of the C++ library that wait for loops. The caller's thread works too. A loop that begins while
/// another one has the threads, or within one, runs on its caller's alone.
///
/// A thread that is through with a loop looks for the next one for a while before it sleeps. So the loops of
/// a query, and of queries that follow each other closely, take about a microsecond to begin and to end,
/// where waking a thread takes tens. Each thread begins with the same share of the parts every time, which
/// its caches may still hold, and then helps the others.
class ThreadPool final : public Executor {
 public:
  /// How long threads look for the next loop where nothing else is said.
  static constexpr std::chrono::microseconds kPolling{50};

  /// So many threads in all, the caller's among them; 0: one a processor. For `polling` they look for the
  /// next loop, and the caller for the end of its own, before they sleep; not at all where they are more than
  /// processors. Throws std::system_error where a thread cannot be started.
  explicit ThreadPool(std::size_t threads = 0, std::chrono::microseconds polling = kPolling) {
    const std::size_t processors = std::max(std::thread::hardware_concurrency(), 1U);
    const std::size_t all = threads != 0 ? threads : processors;
    if (all <= processors) polling_ = polling;
    shares_ = std::make_unique<Share[]>(all);
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

  std::size_t grain() const override { return polling_.count() > 0 ? kGrain : Executor::grain(); }

  void run(std::size_t parts, std::size_t threads, Body body) const override {
    if (threads <= 1 || workers_.empty() || busy_.exchange(true)) {
      return SerialExecutor().run(parts, 1, body);
    }
    loop_.body = body;
    loop_.threads = std::min(threads, workers_.size() + 1);
    for (std::size_t thread = 0; thread < loop_.threads; ++thread) {
      shares_[thread].next = thread * parts / loop_.threads;
      shares_[thread].end = (thread + 1) * parts / loop_.threads;
    }
    open();
    take_parts(0);
    close();
    busy_ = false;
  }

 private:
  static constexpr std::size_t kGrain = std::size_t{128} << 10;
  static constexpr std::size_t kLine = 64;  // bytes of a cache's line: no two threads write to one

  /// The parts that a thread begins with.
  struct alignas(kLine) Share {
    std::atomic<std::size_t> next = 0;
    std::size_t end = 0;
  };

  static constexpr auto kNothing = [](std::size_t, std::size_t) {};

  struct alignas(kLine) Loop {
    Body body = Body(kNothing);
    std::size_t threads = 0;
  };

  /// The loop's number, whether workers may enter it, and how many are within: what they look at.
  struct alignas(kLine) Gate {
    std::atomic<std::uint64_t> state = 0;
  };
  static constexpr std::uint64_t kWithin = (std::uint64_t{1} << 20) - 1;
  static constexpr std::uint64_t kOpen = kWithin + 1;
  static constexpr std::uint64_t kNumber = kOpen << 1;
  static std::uint64_t number_of(std::uint64_t gate) { return gate / kNumber; }

  void take_parts(std::size_t thread) const {
    for (std::size_t i = 0; i < loop_.threads; ++i) {
      Share& share = shares_[(thread + i) % loop_.threads];
      for (std::size_t part = share.next++; part < share.end; part = share.next++) loop_.body(part, thread);
    }
  }

  void open() const {
    gate_.state = (number_of(gate_.state) + 1) * kNumber + kOpen;
    if (sleeping_ == 0) return;
    { const std::lock_guard<std::mutex> lock(mutex_); }  // whoever was about to sleep does now
    begin_.notify_all();
  }

  /// Waits for those who are within; who comes later stays outside.
  void close() const {
    gate_.state -= kOpen;
    const auto left = [this] { return (gate_.state & kWithin) == 0; };
    if (detail::poll(polling_, left)) return;
    caller_sleeps_ = true;
    std::unique_lock<std::mutex> lock(mutex_);
    end_.wait(lock, left);
    caller_sleeps_ = false;
  }

  /// Whether the loop of this number could be entered.
  bool enter(std::uint64_t number) const {
    std::uint64_t gate = gate_.state;
    while (number_of(gate) == number && (gate & kOpen) != 0) {
      if (gate_.state.compare_exchange_weak(gate, gate + 1)) return true;
    }
    return false;
  }

  void leave() const {
    const std::uint64_t left = --gate_.state;
    if ((left & (kOpen | kWithin)) != 0 || !caller_sleeps_) return;
    { const std::lock_guard<std::mutex> lock(mutex_); }
    end_.notify_one();
  }

  void work(std::size_t thread) {
    std::uint64_t done = 0;
    const auto called = [&] { return stopped_ || number_of(gate_.state) != done; };
    for (;;) {
      if (!detail::poll(polling_, called)) {
        std::unique_lock<std::mutex> lock(mutex_);
        ++sleeping_;
        begin_.wait(lock, called);
        --sleeping_;
      }
      if (stopped_) return;
      done = number_of(gate_.state);
      if (!enter(done)) continue;
      if (thread < loop_.threads) take_parts(thread);
      leave();
    }
  }

  void stop() {
    stopped_ = true;
    { const std::lock_guard<std::mutex> lock(mutex_); }
    begin_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  std::chrono::microseconds polling_{0};
  std::unique_ptr<Share[]> shares_;  ///< of every thread
  std::vector<std::thread> workers_;
  mutable Loop loop_;
  mutable Gate gate_;
  mutable std::atomic<bool> busy_ = false;  ///< some loop has the workers
  mutable std::mutex mutex_;
  mutable std::condition_variable begin_;
  mutable std::condition_variable end_;
  mutable std::atomic<std::size_t> sleeping_ = 0;  ///< workers
  mutable std::atomic<bool> caller_sleeps_ = false;
  std::atomic<bool> stopped_ = false;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
