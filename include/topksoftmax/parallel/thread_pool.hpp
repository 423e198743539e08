// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/polling.hpp"
#include "topksoftmax/storage/cache_line.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A pool of std::threads that wait for loops. The caller's thread works too. A loop that begins while
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
    seats_ = std::make_unique<Seat[]>(all);
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
    threads = std::min(threads, workers_.size() + 1);
    for (std::size_t thread = 0; thread < threads; ++thread) {
      Seat& seat = seats_[thread];
      seat.next.store(thread * parts / threads, std::memory_order_relaxed);
      seat.end = (thread + 1) * parts / threads;
      seat.threads = threads;
      seat.body = body;
    }
    call(threads);
    take_parts(0);
    dismiss(threads);
    busy_ = false;
  }

 private:
  static constexpr std::size_t kGrain = std::size_t{128} << 10;

  enum class Turn { idle, called, within, stopped };

  static constexpr auto kNothing = [](std::size_t, std::size_t) {};

  /// All that a worker looks at, in a line of its own: so what a loop costs does not grow by the threads that
  /// it does not take.
  struct alignas(detail::kCacheLine) Seat {
    std::atomic<Turn> turn = Turn::idle;
    std::atomic<std::size_t> next = 0;  ///< of the parts that the thread begins with
    std::size_t end = 0;
    std::size_t threads = 0;  ///< of the loop
    Body body = Body(kNothing);
    bool asleep = false;  ///< under the mutex: until it is called
  };

  void take_parts(std::size_t thread) const {
    const Body body = seats_[thread].body;
    const std::size_t threads = seats_[thread].threads;
    for (std::size_t i = 0; i < threads; ++i) {
      Seat& seat = seats_[(thread + i) % threads];
      if (seat.next.load(std::memory_order_relaxed) >= seat.end)
        continue;  // a look leaves the line where it is
      for (std::size_t part = seat.next++; part < seat.end; part = seat.next++) body(part, thread);
    }
  }

  /// Calls the workers whose threads the loop takes.
  void call(std::size_t threads) const {
    for (std::size_t thread = 1; thread < threads; ++thread) {
      seats_[thread].turn.store(Turn::called, std::memory_order_release);
    }
    // Whoever counts itself among the sleeping after this sees that it is called.
    if (sleeping_.fetch_add(0) != 0) wake(threads);
  }

  /// Wakes those of the workers before this one that sleep.
  void wake(std::size_t end) const {
    bool any = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (std::size_t thread = 1; thread < end; ++thread) {
        any |= seats_[thread].asleep;
        seats_[thread].asleep = false;
      }
    }
    if (any) begin_.notify_all();
  }

  /// Sends away who has not come yet, and waits for those who are within.
  void dismiss(std::size_t threads) const {
    for (std::size_t thread = 1; thread < threads; ++thread) {
      std::atomic<Turn>& turn = seats_[thread].turn;
      const auto left = [&turn] { return turn == Turn::idle; };
      Turn called = Turn::called;
      if (left() || turn.compare_exchange_strong(called, Turn::idle)) continue;
      if (detail::poll(polling_, left)) continue;
      caller_sleeps_ = true;
      std::unique_lock<std::mutex> lock(mutex_);
      end_.wait(lock, left);
      caller_sleeps_ = false;
    }
  }

  void work(std::size_t thread) {
    Seat& seat = seats_[thread];
    const auto called = [&seat] {
      const Turn turn = seat.turn.load(std::memory_order_acquire);
      return turn == Turn::called || turn == Turn::stopped;
    };
    for (;;) {
      if (!detail::poll(polling_, called)) {
        std::unique_lock<std::mutex> lock(mutex_);
        seat.asleep = true;
        ++sleeping_;
        if (called()) seat.asleep = false;
        begin_.wait(lock, [&seat] { return !seat.asleep; });
        --sleeping_;
      }
      Turn found = Turn::called;
      if (!seat.turn.compare_exchange_strong(found, Turn::within)) {
        if (found == Turn::stopped) return;
        continue;  // it came too late, but may be in time for the next loop
      }
      take_parts(thread);
      seat.turn = Turn::idle;
      if (!caller_sleeps_) continue;
      { const std::lock_guard<std::mutex> lock(mutex_); }
      end_.notify_one();
    }
  }

  void stop() {
    const std::size_t end = workers_.size() + 1;
    for (std::size_t thread = 1; thread < end; ++thread) seats_[thread].turn = Turn::stopped;
    wake(end);
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  std::chrono::microseconds polling_{0};
  std::unique_ptr<Seat[]> seats_;  ///< of every thread; the caller's is the first
  std::vector<std::thread> workers_;
  // A loop writes to these, and workers look at them only as they go to sleep:
  alignas(detail::kCacheLine) mutable std::atomic<bool> busy_ = false;  ///< some loop has the workers
  mutable std::atomic<std::size_t> sleeping_ = 0;                       ///< workers
  // Workers look at this as they are through:
  alignas(detail::kCacheLine) mutable std::atomic<bool> caller_sleeps_ = false;
  mutable std::mutex mutex_;
  mutable std::condition_variable begin_;
  mutable std::condition_variable end_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
