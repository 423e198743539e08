// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/timing.hpp"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#ifdef __linux__
#include <sched.h>
#endif

namespace topksoftmax {
namespace {

TEST(Timing, DoesEveryItemInEveryRoundInTurn) {
  std::array<std::vector<int>, 2> done;
  std::vector<TimedWork> works;
  for (std::size_t w = 0; w < 2; ++w) {
    done[w].resize(25);
    works.emplace_back([&done, w](std::size_t first, std::size_t count) {
      ASSERT_LE(first + count, done[w].size());
      for (std::size_t i = first; i < first + count; ++i) ++done[w][i];
    });
  }
  const std::vector<Timing> timings =
      time_interleaved(works, 25, {.rounds = 3, .slice = 10, .warm_up_seconds = 0.0});
  ASSERT_EQ(timings.size(), 2U);
  for (std::size_t w = 0; w < 2; ++w) {
    EXPECT_GE(timings[w].seconds_per_item, 0.0);
    for (const int times : done[w]) EXPECT_GE(times, 3);
  }
}

TEST(Timing, WarmsUpOnTheItemsBeforeTheSlice) {
  std::vector<std::pair<std::size_t, std::size_t>> calls;
  const std::vector<TimedWork> works = {
      [&calls](std::size_t first, std::size_t count) { calls.emplace_back(first, count); }};
  // Time enough for a warm-up to take every item once.
  time_interleaved(works, 20, {.rounds = 1, .slice = 10, .warm_up_seconds = 10.0});
  // After the trial runs: 0 … 19 and the first slice, then 10 … 19, 0 … 9 and the second.
  const std::vector<std::pair<std::size_t, std::size_t>> wanted = {
      {0, 20}, {0, 10}, {10, 10}, {0, 10}, {10, 10}};
  std::vector<std::pair<std::size_t, std::size_t>> seen;
  for (const auto& call : calls) {
    if (seen.empty() || seen.back() != call) seen.push_back(call);  // a disturbed slice is repeated
  }
  ASSERT_GE(seen.size(), wanted.size());
  EXPECT_EQ(std::vector(seen.end() - 5, seen.end()), wanted);
}

TEST(Timing, ReportsProgressUpToTheEnd) {
  std::vector<double> shares;
  const std::vector<TimedWork> works = {[](std::size_t, std::size_t) {}};
  time_interleaved(
      works, 4, {.rounds = 2, .slice = 2, .progress = [&shares](double share) { shares.push_back(share); }});
  EXPECT_EQ(shares, (std::vector<double>{0.25, 0.5, 0.75, 1.0}));
}

TEST(Timing, RefusesNothingToTime) {
  const std::vector<TimedWork> works = {[](std::size_t, std::size_t) {}};
  EXPECT_THROW(time_interleaved(works, 0), std::invalid_argument);
  EXPECT_THROW(time_interleaved(works, 1, {.rounds = 0}), std::invalid_argument);
  EXPECT_THROW(time_interleaved(works, 1, {.slice = 0}), std::invalid_argument);
}

TEST(Timing, PassesExceptionsOn) {
  const std::vector<TimedWork> works = {[](std::size_t, std::size_t) { throw std::runtime_error("work"); }};
  EXPECT_THROW(time_interleaved(works, 1), std::runtime_error);
}

#ifdef __linux__
int processors() {
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof(allowed), &allowed);
  return CPU_COUNT(&allowed);
}

TEST(PinnedThread, KeepsOneProcessorAndGivesTheOthersBack) {
  const int before = processors();
  {
    const PinnedThread pinned;
    EXPECT_EQ(processors(), 1);
  }
  EXPECT_EQ(processors(), before);
}
#endif

}  // namespace
}  // namespace topksoftmax
