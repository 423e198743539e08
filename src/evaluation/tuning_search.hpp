// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "evaluation/tuning_plan.hpp"
#include "evaluation/tuning_trials.hpp"

namespace topksoftmax {

/// Decides which settings are tried.
class TuningSearch {
 public:
  /// `check_time`, called before each setting, throws OutOfTime when there is none left.
  TuningSearch(TuningTrials& trials, std::function<void()> check_time);

  /// Finds the first model of an axis that meets the target, as if all behind it did and none before it; and
  /// of each model that is on the way there and misses it, the first effort that meets it. The axis outlives
  /// this.
  void run(const TuningAxis& axis);

  /// The refined form of that axis which has had the best setting of all that have one. Null: there is none.
  const TuningAxis* to_refine() const;

  /// Tries the refined model of that setting, unless that can only be as fast as the setting is, and those
  /// before it while they meet the target.
  void refine();

 private:
  /// A setting on an axis that can be refined.
  struct Setting {
    const TuningAxis* axis;
    std::size_t model;
    std::size_t effort;
    bool met;
    double bound;
    double glance;

    bool better_than(const Setting& other) const;
  };

  /// The verdict on a model's first effort, after which others may have been tried.
  TuningVerdict try_model(const TuningAxis& axis, std::size_t model);

  TuningTrials& trials_;
  std::function<void()> check_time_;
  std::optional<Setting> best_;
};

}  // namespace topksoftmax
