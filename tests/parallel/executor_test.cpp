// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/parallel/executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/executors.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/parallel/started_threads.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax {
namespace {

class ExecutorTest : public ::testing::TestWithParam<const Executor*> {};

TEST_P(ExecutorTest, DoesEveryPartOnceOnNumberedThreads) {
  const Executor& executor = *GetParam();
  for (const std::size_t total : {0U, 1U, 2U, 7U, 1000U}) {
    for (const std::size_t threads : {1U, 2U, 3U, 64U}) {
      std::vector<std::atomic<int>> done(total);
      std::vector<std::atomic<int>> busy(threads);
      for_each_part_on(executor, threads, total, 3,
                       [&](std::size_t first, std::size_t count, std::size_t thread) {
                         ASSERT_LT(thread, threads);
                         EXPECT_EQ(busy[thread]++, 0) << "two threads with one number";
                         EXPECT_LE(count, 3U);
                         for (std::size_t i = first; i < first + count; ++i) ++done[i];
                         --busy[thread];
                       });
      EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
    }
  }
}

TEST_P(ExecutorTest, CarriesTheFirstExceptionOut) {
  const Executor& executor = *GetParam();
  for (const std::size_t wrong : {0U, 41U, 99U}) {
    EXPECT_THROW(for_each_part(executor, 100, 1,
                               [&](std::size_t first, std::size_t) {
                                 if (first == wrong) throw std::runtime_error("part");
                               }),
                 std::runtime_error);
  }
  std::atomic<int> done = 0;
  for_each_part(executor, 100, 1, [&](std::size_t, std::size_t) { ++done; });
  EXPECT_EQ(done, 100) << "it remains usable";
}

TEST_P(ExecutorTest, RunsLoopsWithinLoopsAndFromManyThreads) {
  const Executor& executor = *GetParam();
  std::atomic<int> done = 0;
  const auto nested = [&] {
    for_each_part(executor, 8, 1, [&](std::size_t, std::size_t) {
      for_each_part(executor, 8, 1, [&](std::size_t, std::size_t) { ++done; });
    });
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(nested);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 4 * 64);
}

const SerialExecutor serial;
const StartedThreads started;

/// More threads than many machines have processors: they sleep between loops.
const ThreadPool& pool() {
  static const ThreadPool four(4);
  return four;
}

const ThreadPool& polling_pool() {
  static const ThreadPool two(2, std::chrono::microseconds(200));
  return two;
}

const testing::ReversedExecutor& callers_own() {
  static const testing::ReversedExecutor own;
  return own;
}

INSTANTIATE_TEST_SUITE_P(, ExecutorTest,
                         ::testing::Values(&serial, &started, &pool(), &polling_pool(), &callers_own(),
                                           &default_executor()));

}  // namespace
}  // namespace topksoftmax
