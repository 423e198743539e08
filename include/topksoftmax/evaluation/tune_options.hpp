// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How good the answers must be.
struct TuneTarget {
  std::size_t k = 5;        ///< tokens of a query, at least 1; more than V counts as V
  double precision = 0.99;  ///< the least expected P@k (see Precision::at), above 0; 1: proven exact
};

/// What a backend may cost.
struct TuneBudget {
  std::optional<double> microseconds;      ///< a query, above 0
  std::optional<std::size_t> index_bytes;  ///< beside the layer
};

/// What tune() looks for, and for how long. It throws Error for values out of their ranges.
struct TuneOptions {
  /// How good the answers must be.
  TuneTarget target = {};
  /// What they may cost.
  TuneBudget budget = {};
  /// How sure the bounds are, above 0 and at most 1 − 1e-9: that of all rows together.
  double confidence = 0.95;
  /// After this many seconds nothing new is begun, and builds that tell of their progress are given up; at
  /// least 0. What is always tried, other builds once begun, and the timing in the end (about ten seconds)
  /// are finished.
  double max_seconds = 120.0;
  /// Contexts that backends learn from, at most; at least 1.
  std::size_t max_fit = 50000;
  /// Contexts that they are judged on, at most; at least 1. A fifth of all, if that is less.
  std::size_t max_validation = 4000;
  /// Decides which contexts are for what.
  std::uint64_t seed = 1;
  /// How often each token occurred in the training text [V]. Empty: unknown, and no shortlist is tried.
  std::vector<std::int64_t> counts = {};
  /// Told of every step; done never falls, and ends at 1.
  TrainingProgress progress = {};
};

/// One setting that was tried. What was not measured is NaN.
struct TuneRow {
  /// In place of a figure that nobody has measured.
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::string backend;     ///< its name, as TopKSoftmax::name() has it
  std::string settings;    ///< as the harness prints them: "budget=50"; empty: the defaults
  std::string code;        ///< builds it: "L2S::train(layer, contexts, {.budget = 50})"
  std::size_t effort = 0;  ///< QueryOptions::effort to ask with
  bool exact = false;      ///< every answer is the exact one, by proof
  /// Seconds that its build took; 0 where a row before it has built it, or where the build was given up.
  double build_seconds = kUnknown;
  /// Bytes of its index.
  std::size_t index_bytes = 0;
  double precision = kUnknown;     ///< the mean P@k of the validation contexts
  double lower_bound = kUnknown;   ///< what the expected P@k is at least; 1 where exact
  double microseconds = kUnknown;  ///< a query, one at a time on one thread
  double spread = kUnknown;        ///< of the rounds that tell so: Timing::spread
  double bytes_read = kUnknown;    ///< the mean of QueryWork::bytes_read
  std::string reason;              ///< why it was not taken, or not measured; empty for the one that was
};

/// What tuning found.
struct TuneResult {
  /// The one to use, learned from the fit contexts. Its usual effort is the one that was found.
  std::shared_ptr<const TopKSoftmax> backend;
  std::size_t effort = 0;      ///< that effort
  std::size_t k = 0;           ///< the target's, at most V
  std::size_t chosen = 0;      ///< its row
  bool within_budget = true;   ///< false: none of them answers in the microseconds asked for
  bool finished = true;        ///< false: the time was over before all had been tried
  std::vector<TuneRow> rows;   ///< all that were tried, in that order
  std::size_t fit = 0;         ///< contexts learned from
  std::size_t validation = 0;  ///< contexts judged on
  /// The best lower bound that so many contexts can give a backend that is not exact by proof: where it is
  /// below the target, none of these is taken, nor tried unless it always is.
  double provable = 0.0;
  /// Contexts to judge on from which the target can be reached; 0: from none, as for a precision of 1.
  std::size_t validation_needed = 0;

  /// The row of the backend taken.
  const TuneRow& row() const { return rows[chosen]; }

  /// Options to ask the backend with.
  QueryOptions query() const { return {.k = k, .effort = effort}; }
};

}  // namespace TOPKSOFTMAX_NAMESPACE
