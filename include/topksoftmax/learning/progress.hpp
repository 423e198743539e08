// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Told now and then, on the thread that builds or trains, what is being done and what share of the whole is
/// done, 0 to 1, never less than before. It may throw to give the work up: that is passed on, and nothing is
/// left of what was begun.
using TrainingProgress = std::function<void(std::string_view step, double done)>;

/// Told the share of a single step that is done, 0 to 1; may be empty.
using StepProgress = std::function<void(double done)>;

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Tells of a step, if there is anybody to be told.
inline void tell(const TrainingProgress& progress, std::string_view step, double done) {
  if (progress) progress(step, done);
}

/// What tells of the part of `whole` from one share to another as if it were a whole; empty where that is.
inline TrainingProgress part_of(const TrainingProgress& whole, double begin, double end) {
  if (!whole) return {};
  return
      [whole, begin, end](std::string_view step, double done) { whole(step, begin + (end - begin) * done); };
}

/// What tells of the part of a step from one share to another as if it were the step; empty where that is.
inline StepProgress share_of(const StepProgress& step, double begin, double end) {
  if (!step) return {};
  return [step, begin, end](double done) { step(begin + (end - begin) * done); };
}

/// What tells of the step of this name from one share to another, the first of them now; empty where `whole`
/// is.
inline StepProgress step_of(const TrainingProgress& whole, std::string step, double begin, double end) {
  if (!whole) return {};
  whole(step, begin);
  return
      [whole, step = std::move(step), begin, end](double done) { whole(step, begin + (end - begin) * done); };
}

/// The share of a build that making an index takes; learning the mass outside takes the rest.
inline constexpr double kIndexed = 0.3;

/// Tells that an index is being made, which takes a build to kIndexed.
inline void report_indexing(const TrainingProgress& progress) {
  tell(progress, "indexing the rows", 0.0);
}

/// What tells of learning the mass outside, which takes a build from the share `begin` to its end.
inline StepProgress learning_outside(const TrainingProgress& progress, double begin) {
  return step_of(progress, "learning the mass outside", begin, 1.0);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
