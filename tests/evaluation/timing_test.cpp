// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/timing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <ostream>
#include <stdexcept>
#include <vector>

namespace topksoftmax {
namespace {

/// Clocks that stand still but for what works say that they take.
struct Clocks {
  double seconds = 0.0;
  double processor_seconds = 0.0;

  double wall() const { return seconds; }
  double processor() const { return processor_seconds; }
  /// Passes time, of which the thread has its processor for some.
  void pass(double wall, double processor) {
    seconds += wall;
    processor_seconds += processor;
  }
};

TEST(Timing, SumsUpMediansForAnItemAndTheSpreadOfRounds) {
  // Medians 2 and 4 over five items; whole rounds of 5, 12 and 10 with quartiles 7.5 and 11.
  const Timing timing = detail::summary_of({{1.0, 9.0, 2.0}, {4.0, 3.0, 8.0}}, 5);
  EXPECT_DOUBLE_EQ(timing.seconds_per_item, 1.2);
  EXPECT_DOUBLE_EQ(timing.spread, 0.35);
  // A round is as good as another, wherever it stands.
  const Timing again = detail::summary_of({{2.0, 1.0, 9.0}, {8.0, 4.0, 3.0}}, 5);
  EXPECT_DOUBLE_EQ(again.seconds_per_item, timing.seconds_per_item);
  EXPECT_DOUBLE_EQ(again.spread, timing.spread);
}

TEST(Timing, RepeatsWhatWasDisturbedAFewTimes) {
  struct Passed {
    double wall;
    double processor;
  };
  struct Case {
    std::vector<Passed> calls;  ///< the last is made over and over
    std::size_t made;
    double seconds;
  };
  const Case cases[] = {
      {{{4.0, 4.0}, {1.0, 1.0}}, 1, 4.0},                          // kept its processor at once
      {{{4.0, 3.95}, {1.0, 1.0}}, 1, 4.0},                         // all but for 2 %
      {{{4.0, 3.9}, {3.5, 3.5}, {1.0, 1.0}}, 2, 3.5},              // lost it once
      {{{1.9e-6, 0.0}, {1e-6, 1e-6}}, 1, 1.9e-6},                  // no more than clocks take
      {{{2.1e-6, 0.0}, {1e-6, 1e-6}}, 2, 1e-6},                    // more
      {{{9.0, 1.0}, {5.0, 1.0}, {6.0, 1.0}, {7.0, 1.0}}, 4, 5.0},  // never kept it
  };
  for (const Case& one : cases) {
    Clocks clocks;
    std::size_t made = 0;
    const double seconds = detail::undisturbed_seconds(
        [&] {
          const Passed& call = one.calls[std::min(made++, one.calls.size() - 1)];
          clocks.pass(call.wall, call.processor);
        },
        clocks);
    EXPECT_EQ(made, one.made);
    EXPECT_NEAR(seconds, one.seconds, 1e-12);
  }
}

TEST(Timing, TellsWhatEachWorkTook) {
  Clocks clocks;
  std::size_t calls = 0;
  const std::vector<TimedWork> works = {
      // An item takes 2 seconds up to the tenth, then 4.
      [&clocks](std::size_t first, std::size_t count) {
        for (std::size_t i = first; i < first + count; ++i) {
          const double seconds = i < 10 ? 2.0 : 4.0;
          clocks.pass(seconds, seconds);
        }
      },
      // An item takes a second, and in every eleventh call a minute in which others have the processor.
      [&clocks, &calls](std::size_t, std::size_t count) {
        const auto seconds = static_cast<double>(count);
        clocks.pass(++calls % 11 == 0 ? seconds + 60.0 : seconds, seconds);
      }};
  const std::vector<Timing> timings =
      detail::time_in_turn(works, 25, {.rounds = 5, .slice = 10, .warm_up_seconds = 3.0}, clocks);
  ASSERT_EQ(timings.size(), 2U);
  EXPECT_DOUBLE_EQ(timings[0].seconds_per_item, (10 * 2.0 + 15 * 4.0) / 25);
  EXPECT_DOUBLE_EQ(timings[1].seconds_per_item, 1.0);
  EXPECT_EQ(timings[0].spread, 0.0);
  EXPECT_EQ(timings[1].spread, 0.0);
}

/// A call of one of several works.
struct Call {
  std::size_t work;
  std::size_t first;
  std::size_t count;

  friend bool operator==(const Call&, const Call&) = default;
  friend void PrintTo(const Call& call, std::ostream* out) {
    *out << "work " << call.work << ": " << call.first << " + " << call.count;
  }
};

/// The calls of works whose items take these seconds.
std::vector<Call> calls_of(const std::vector<double>& seconds_per_item, std::size_t items,
                           const TimingOptions& options) {
  Clocks clocks;
  std::vector<Call> calls;
  std::vector<TimedWork> works;
  for (std::size_t w = 0; w < seconds_per_item.size(); ++w) {
    works.emplace_back(
        [&calls, &clocks, w, seconds = seconds_per_item[w]](std::size_t first, std::size_t count) {
          calls.push_back({w, first, count});
          clocks.pass(seconds * static_cast<double>(count), seconds * static_cast<double>(count));
        });
  }
  detail::time_in_turn(works, items, options, clocks);
  return calls;
}

TEST(Timing, TimesSliceBySliceAndRoundByRoundInTurn) {
  // Trial runs of a slice: one item keeps the first work busy long enough, two the second.
  std::vector<Call> expected = {{0, 0, 8}, {1, 0, 8}};
  for (int round = 0; round < 2; ++round) {
    const Call of_round[] = {{0, 19, 1}, {0, 0, 8}, {1, 18, 2}, {1, 0, 8},  {0, 7, 1},  {0, 8, 8},
                             {1, 6, 2},  {1, 8, 8}, {0, 15, 1}, {0, 16, 4}, {1, 14, 2}, {1, 16, 4}};
    expected.insert(expected.end(), std::begin(of_round), std::end(of_round));
  }
  EXPECT_EQ(calls_of({1.0, 0.25}, 20, {.rounds = 2, .slice = 8, .warm_up_seconds = 0.5}), expected);
}

TEST(Timing, WarmsUpOnAsManyItemsBeforeTheSliceAsTakeTheTime) {
  // Ten items take 2.5 seconds, twenty 5: at least 3.
  const std::vector<Call> expected = {{0, 0, 10}, {0, 0, 20},  {0, 13, 12}, {0, 0, 10}, {0, 23, 2},
                                      {0, 0, 10}, {0, 10, 10}, {0, 8, 12},  {0, 20, 5}};
  EXPECT_EQ(calls_of({0.25}, 25, {.rounds = 1, .slice = 10, .warm_up_seconds = 3.0}), expected);
}

TEST(Timing, WarmsUpOnEveryItemOnceAtTheMost) {
  const std::vector<Call> expected = {{0, 0, 10},  {0, 0, 20}, {0, 0, 20}, {0, 0, 10},
                                      {0, 10, 10}, {0, 0, 10}, {0, 10, 10}};
  EXPECT_EQ(calls_of({0.25}, 20, {.rounds = 1, .slice = 10, .warm_up_seconds = 60.0}), expected);
}

TEST(Timing, DoesEveryItemInEveryRound) {
  std::vector<int> done(25);
  const std::vector<TimedWork> works = {[&done](std::size_t first, std::size_t count) {
    ASSERT_LE(first + count, done.size());
    for (std::size_t i = first; i < first + count; ++i) ++done[i];
  }};
  time_interleaved(works, 25, {.rounds = 3, .slice = 10, .warm_up_seconds = 0.0});
  for (const int times : done) EXPECT_GE(times, 3);
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

}  // namespace
}  // namespace topksoftmax
