// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "topksoftmax/export.hpp"

namespace topksoftmax {

/// Keeps the thread that makes it on one processor (the last that it may run on) until it is destroyed.
/// Where the system offers no such thing, it does nothing.
class TOPKSOFTMAX_EXPORT PinnedThread {
 public:
  PinnedThread();
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  std::vector<unsigned char> previous_;  ///< the processors that it could run on, as the system writes them
};

struct TimingOptions {
  std::size_t rounds = 9;          ///< times that every item is timed, at least 1
  std::size_t slice = 100;         ///< items timed in one go, at least 1
  double warm_up_seconds = 0.002;  ///< how long each slice is preceded by untimed work of the same kind
  /// Called after each slice with the share done, 0 … 1; may be empty.
  std::function<void(double)> progress = {};
};

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
/// predictors are in its hands. A slice in which the thread lost its processor is timed again, a few times at
/// most. Throws std::invalid_argument for no items, no rounds or an empty slice.
TOPKSOFTMAX_EXPORT std::vector<Timing> time_interleaved(std::span<const TimedWork> works, std::size_t items,
                                                        const TimingOptions& options = {});

}  // namespace topksoftmax
