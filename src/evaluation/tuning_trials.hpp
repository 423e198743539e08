// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "evaluation/tuning_plan.hpp"
#include "topksoftmax/evaluation/precision.hpp"
#include "topksoftmax/evaluation/tuner.hpp"

namespace topksoftmax {

/// Thrown where there is no time left.
struct OutOfTime {};

/// Measures settings on contexts that none of them has learned from, and keeps a list of them.
class TuningTrials {
 public:
  /// `row_confidence` is that of each bound. The contexts outlive this.
  TuningTrials(const SoftmaxLayer& layer, const Contexts& validation, const TuneOptions& options,
               double row_confidence);

  /// Tries the only point of an axis, and times it whatever its precision.
  void try_standard(const TuningAxis& axis);

  /// Finds the first point of an axis that meets the target, as if all after it did and none before it.
  /// `check_time`, called before each point, throws OutOfTime when there is none left.
  void search(const TuningAxis& axis, const std::function<void()>& check_time);

  /// Times those that are standard, and those that are eligible, against each other.
  void time(const std::function<void(double)>& progress);

  /// The fastest eligible one. One must be, and they must have been timed.
  std::size_t fastest() const;

  /// The rows, each with the reason why it was not taken.
  std::vector<TuneRow> explain(std::size_t chosen) const;

  const std::shared_ptr<const TopKSoftmax>& backend(std::size_t i) const { return trials_[i].backend; }

 private:
  struct Trial {
    TuneRow row;
    std::shared_ptr<const TopKSoftmax> backend;  ///< null unless it is to be timed
  };

  /// Builds and measures one setting into a new trial: false if that is not possible. `built` is what the
  /// point's build gave before, or null, and takes what is built now.
  bool measure(const TuningAxis& axis, const TuningPoint& point, std::shared_ptr<const TopKSoftmax>& built);

  bool meets_target(const TuneRow& row) const { return row.lower_bound >= target_.precision; }
  bool small_enough(const TuneRow& row) const;
  std::string reason(const TuneRow& row, const TuneRow& chosen) const;

  SoftmaxLayer layer_;
  Contexts validation_;
  TuneTarget target_;
  TuneBudget budget_;
  double row_confidence_;
  GroundTruth truth_;
  std::vector<Trial> trials_;
};

}  // namespace topksoftmax
