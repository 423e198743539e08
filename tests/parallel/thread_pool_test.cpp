// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/parallel/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"

namespace topksoftmax {
namespace {

constexpr std::chrono::microseconds kAsleep{0};    // between loops, at once
constexpr std::chrono::microseconds kAwake{5000};  // for longer than it takes to begin the next one

TEST(ThreadPool, HasTheThreadsThatItWasAskedFor) {
  EXPECT_EQ(ThreadPool(3).threads(), 3U);
  EXPECT_EQ(ThreadPool(1).threads(), 1U);
  EXPECT_GE(ThreadPool().threads(), 1U);
}

TEST(ThreadPool, TakesAsManyThreadsAsALoopAllows) {
  const ThreadPool threads(4);
  std::atomic<std::size_t> highest = 0;
  for_each_part_on(threads, 2, 200, 1, [&](std::size_t, std::size_t, std::size_t thread) {
    std::size_t seen = highest;
    while (thread > seen && !highest.compare_exchange_weak(seen, thread)) {
    }
  });
  EXPECT_LT(highest, 2U);
}

TEST(ThreadPool, DoesEveryPartOfManyLoopsWhetherItsThreadsSleepOrLook) {
  for (const auto polling : {kAsleep, std::chrono::microseconds(1), kAwake}) {
    const ThreadPool threads(2, polling);
    for (std::size_t loop = 0; loop < 5000; ++loop) {
      const std::size_t parts = 2 + loop % 7;
      std::vector<int> done(parts);  // by whom is nobody else's
      const auto body = [&](std::size_t part, std::size_t) { ++done[part]; };
      threads.run(parts, 2, Executor::Body(body));
      ASSERT_EQ(done, std::vector<int>(parts, 1)) << loop;
    }
  }
}

TEST(ThreadPool, DoesEveryPartWhicheverOfItsThreadsALoopTakes) {
  for (const auto polling : {kAsleep, std::chrono::microseconds(1), kAwake}) {
    const ThreadPool threads(4, polling);
    for (std::size_t loop = 0; loop < 2000; ++loop) {
      const std::size_t parts = 1 + loop % 9;
      const std::size_t taken = 1 + loop % 5;
      std::vector<int> done(parts);
      const auto body = [&](std::size_t part, std::size_t thread) { done[part] += thread < taken ? 1 : 100; };
      threads.run(parts, taken, Executor::Body(body));
      ASSERT_EQ(done, std::vector<int>(parts, 1)) << loop;
    }
  }
}

TEST(ThreadPool, WakesThreadsThatHaveGoneToSleep) {
  const ThreadPool threads(2, std::chrono::microseconds(100));
  for (int loop = 0; loop < 20; ++loop) {
    std::atomic<int> begun = 0;
    // Neither part ends before both have begun, so each thread does one.
    const auto meet = [&](std::size_t, std::size_t) {
      ++begun;
      while (begun < 2) std::this_thread::yield();
    };
    threads.run(2, 2, Executor::Body(meet));
    EXPECT_EQ(begun, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(ThreadPool, BeginsWithTheSamePartsOnTheSameThreads) {
  const ThreadPool threads(3);
  for (int loop = 0; loop < 20; ++loop) {
    std::vector<std::size_t> by(6, 99);
    std::atomic<int> begun = 0;
    const auto meet = [&](std::size_t part, std::size_t thread) {
      by[part] = thread;
      ++begun;
      while (begun < 3) std::this_thread::yield();
    };
    threads.run(6, 3, Executor::Body(meet));
    // The first part of each thread's share; what comes after that may be done by whoever is free.
    EXPECT_EQ(by[0], 0U);
    EXPECT_EQ(by[2], 1U);
    EXPECT_EQ(by[4], 2U);
  }
}

TEST(ThreadPool, HasOthersDoWhatOneIsTooBusyFor) {
  const ThreadPool threads(2);
  std::atomic<int> done = 0;
  // Its first part does not end before all others have.
  const auto body = [&](std::size_t part, std::size_t) {
    while (part == 0 && done < 9) std::this_thread::yield();
    ++done;
  };
  threads.run(10, 2, Executor::Body(body));
  EXPECT_EQ(done, 10);
}

TEST(ThreadPool, TakesSmallPartsOnlyWhereItsThreadsLook) {
  EXPECT_EQ(ThreadPool(2, kAsleep).grain(), SerialExecutor().grain());
  EXPECT_EQ(ThreadPool(std::thread::hardware_concurrency() + 1, kAwake).grain(), SerialExecutor().grain());
  EXPECT_LT(ThreadPool(1, kAwake).grain(), SerialExecutor().grain());
}

}  // namespace
}  // namespace topksoftmax
