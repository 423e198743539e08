// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "evaluation/tuning_plan.hpp"
#include "topksoftmax/evaluation/precision.hpp"
#include "topksoftmax/evaluation/tuner.hpp"

namespace topksoftmax {

/// Thrown where there is no time left.
struct OutOfTime {};

/// What a trial tells of its setting, and of those before and behind it.
enum class TuningVerdict : std::uint8_t {
  met,       ///< its precision is sure to reach the target
  missed,    ///< it is not
  hopeless,  ///< too slow, too large or impossible, whatever its precision, and so is all behind it
};

/// Measures settings on contexts that none of them has learned from, and keeps a list of them.
class TuningTrials {
 public:
  /// `row_confidence` is that of each bound. The contexts outlive this.
  TuningTrials(const SoftmaxLayer& layer, const Contexts& validation, const TuneOptions& options,
               double row_confidence);

  /// Tries the only setting of an axis, and times it whatever its precision. The first of all is exact.
  void try_standard(const TuningAxis& axis);

  /// Tries a setting. `built` is the model's backend, or null, and takes what is built now. One that at a
  /// glance takes much longer than the quickest eligible one so far is given up: its precision is not
  /// measured.
  TuningVerdict try_setting(const TuningAxis& axis, const TuningModel& model, const TuningEffort& effort,
                            std::shared_ptr<const TopKSoftmax>& built);

  /// Of what was tried last: how sure its precision is, and its time at a glance, in that of the first.
  double last_bound() const { return trials_.back().row.lower_bound; }
  double last_glance() const { return trials_.back().glance; }

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
    double glance = 1.0;
  };

  /// Adds a trial and builds its backend into `built`, unless there is one: false if that is not possible.
  bool begin(const TuningAxis& axis, const TuningModel& model, const TuningEffort& effort,
             std::shared_ptr<const TopKSoftmax>& built);
  /// Compares the last trial's speed with that of the quickest.
  void glance(const TopKSoftmax& backend);
  /// Finds the last trial's precision.
  void measure(const TopKSoftmax& backend);
  /// Keeps in mind which is the quickest, now that the last trial is eligible.
  void compare_with_quickest();

  bool meets_target(const TuneRow& row) const { return row.lower_bound >= target_.precision; }
  bool small_enough(const TuneRow& row) const;
  std::string reason(const TuneRow& row, const TuneRow& chosen) const;

  SoftmaxLayer layer_;
  Contexts validation_;
  TuneTarget target_;
  TuneBudget budget_;
  double row_confidence_;
  GroundTruth truth_;
  double scan_seconds_;  ///< of one query of Fused, about
  std::vector<Trial> trials_;
  std::size_t quickest_ = 0;  ///< of the eligible trials, by their glances
};

}  // namespace topksoftmax
