// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/numeric/quantile.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How works are timed.
struct TimingOptions {
  std::size_t rounds = 9;          ///< times that every item is timed, at least 1
  std::size_t slice = 100;         ///< items timed in one go, at least 1
  double warm_up_seconds = 0.002;  ///< how long each slice is preceded by untimed work of the same kind
  StepProgress progress = {};      ///< told after each slice
};

/// What timing has found of one work.
struct Timing {
  /// The mean over the slices of the median over the rounds, divided by the items.
  double seconds_per_item = 0.0;
  /// The interquartile range of the rounds' whole times as a share of their median: how restless the machine
  /// was.
  double spread = 0.0;
};

/// Something to be timed: does the work of items first … first + count − 1.
using TimedWork = std::function<void(std::size_t first, std::size_t count)>;

/// Times several works against each other: slice by slice and round by round, each in turn, so that whatever
/// else the machine does meets all of them alike. Compare the results of one call with each other only.
///
/// Before every timed slice the same work is done untimed on the items before it, until caches and branch
/// predictors have adapted to it. A slice in which the thread lost its processor is timed again, a few times
/// at most. Throws std::invalid_argument for no items, no rounds or an empty slice.
std::vector<Timing> time_interleaved(std::span<const TimedWork> works, std::size_t items,
                                     const TimingOptions& options = {});

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

using SteadyClock = std::chrono::steady_clock;

/// Processor time of this thread in seconds; wall-clock time where the system does not tell.
inline double thread_seconds() {
#ifdef CLOCK_THREAD_CPUTIME_ID
  timespec now{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0) {
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
#endif
  return std::chrono::duration<double>(SteadyClock::now().time_since_epoch()).count();
}

/// What time is told by; tests have their own.
struct SystemClocks {
  double wall() const { return std::chrono::duration<double>(SteadyClock::now().time_since_epoch()).count(); }
  double processor() const { return thread_seconds(); }
};

/// The least wall-clock seconds of a few calls, up to the first in which the thread kept its processor.
template <class Call, class Clocks>
double undisturbed_seconds(const Call& call, const Clocks& clocks) {
  constexpr int kAttempts = 4;
  constexpr double kTolerance = 1.02;
  constexpr double kClockSeconds = 2e-6;  // what reading the clocks may take
  double best = 0.0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double cpu_start = clocks.processor();
    const double start = clocks.wall();
    call();
    const double wall = clocks.wall() - start;
    const double cpu = clocks.processor() - cpu_start;
    best = attempt == 0 ? wall : std::min(best, wall);
    if (wall <= cpu * kTolerance + kClockSeconds) break;
  }
  return best;
}

inline void check_timing(std::size_t items, const TimingOptions& options) {
  if (items == 0) throw std::invalid_argument("time_interleaved: there are no items to time");
  if (options.rounds == 0)
    throw std::invalid_argument("time_interleaved: rounds is 0; it must be at least 1");
  if (options.slice == 0) throw std::invalid_argument("time_interleaved: slice is 0; it must be at least 1");
}

/// The work of `count` items that end before item `end`, going round.
inline void run_before(const TimedWork& work, std::size_t end, std::size_t count, std::size_t items) {
  const std::size_t tail = std::min(count, end);
  if (tail < count) work(items - (count - tail), count - tail);
  if (tail > 0) work(end - tail, tail);
}

/// Items that keep the work busy for the given time, told by the first of one slice, two, four, … that do.
template <class Clocks>
std::size_t items_for(const TimedWork& work, double seconds, std::size_t slice, std::size_t items,
                      const Clocks& clocks) {
  for (std::size_t count = std::min(slice, items);; count = std::min(2 * count, items)) {
    const double start = clocks.wall();
    work(0, count);
    const double took = clocks.wall() - start;
    if (took < seconds && count < items) continue;
    const auto needed =
        static_cast<std::size_t>(std::ceil(seconds / std::max(took, 1e-9) * static_cast<double>(count)));
    return std::clamp<std::size_t>(needed, 1, items);
  }
}

/// Timing::spread of rounds that took these times.
inline double spread_of(const std::vector<double>& rounds) {
  return (quantile(rounds, 0.75) - quantile(rounds, 0.25)) / quantile(rounds, 0.5);
}

/// What is found of a work whose slices took seconds[slice][round].
inline Timing summary_of(const std::vector<std::vector<double>>& seconds, std::size_t items) {
  std::vector<double> rounds(seconds.front().size(), 0.0);
  double total = 0.0;
  for (const std::vector<double>& slice : seconds) {
    total += quantile(slice, 0.5);
    for (std::size_t round = 0; round < rounds.size(); ++round) rounds[round] += slice[round];
  }
  return {.seconds_per_item = total / static_cast<double>(items), .spread = spread_of(rounds)};
}

/// time_interleaved() by these clocks.
template <class Clocks>
std::vector<Timing> time_in_turn(std::span<const TimedWork> works, std::size_t items,
                                 const TimingOptions& options, const Clocks& clocks) {
  const std::size_t slices = (items + options.slice - 1) / options.slice;
  std::vector<std::size_t> warm_up;
  warm_up.reserve(works.size());
  for (const TimedWork& work : works) {
    warm_up.push_back(items_for(work, options.warm_up_seconds, options.slice, items, clocks));
  }

  // seconds[work][slice][round]
  std::vector<std::vector<std::vector<double>>> seconds(works.size(),
                                                        std::vector<std::vector<double>>(slices));
  for (std::size_t round = 0; round < options.rounds; ++round) {
    for (std::size_t slice = 0; slice < slices; ++slice) {
      const std::size_t first = slice * options.slice;
      const std::size_t count = std::min(options.slice, items - first);
      for (std::size_t w = 0; w < works.size(); ++w) {
        run_before(works[w], first, warm_up[w], items);
        seconds[w][slice].push_back(undisturbed_seconds([&] { works[w](first, count); }, clocks));
      }
      if (options.progress) {
        options.progress(static_cast<double>(round * slices + slice + 1) /
                         static_cast<double>(options.rounds * slices));
      }
    }
  }

  std::vector<Timing> timings;
  timings.reserve(works.size());
  for (const auto& of_work : seconds) timings.push_back(summary_of(of_work, items));
  return timings;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline std::vector<Timing> time_interleaved(std::span<const TimedWork> works, std::size_t items,
                                            const TimingOptions& options) {
  detail::check_timing(items, options);
  return detail::time_in_turn(works, items, options, detail::SystemClocks());
}

}  // namespace TOPKSOFTMAX_NAMESPACE
