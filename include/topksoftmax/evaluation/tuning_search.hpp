// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/evaluation/tuning_plan.hpp"
#include "topksoftmax/evaluation/tuning_trials.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

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

/// Looks for the first of the numbers low … high − 1 on which the verdict is `met`. What is hopeless in the
/// middle may well be so from the beginning, which is looked at next.
template <class Try>
void bisect(std::size_t low, std::size_t high, const Try& verdict_on) {
  bool hopeless = false;
  while (low < high) {
    const std::size_t at = hopeless ? low : low + (high - low) / 2;
    const TuningVerdict verdict = verdict_on(at);
    hopeless = verdict == TuningVerdict::hopeless;
    (verdict == TuningVerdict::missed ? low : high) = verdict == TuningVerdict::missed ? at + 1 : at;
  }
}

inline TuningSearch::TuningSearch(TuningTrials& trials, std::function<void()> check_time)
    : trials_(trials), check_time_(std::move(check_time)) {}

inline void TuningSearch::run(const TuningAxis& axis) {
  bisect(0, axis.models.size(), [&](std::size_t model) { return try_model(axis, model); });
}

inline TuningVerdict TuningSearch::try_model(const TuningAxis& axis, std::size_t number) {
  const TuningModel& model = axis.models[number];
  std::shared_ptr<TopKSoftmax> built;
  const auto try_effort = [&](std::size_t effort) {
    check_time_();
    const TuningVerdict verdict = trials_.try_setting(axis, model, model.efforts[effort], built);
    if (axis.refined != nullptr && verdict != TuningVerdict::hopeless) {
      const Setting setting = {.axis = &axis,
                               .model = number,
                               .effort = effort,
                               .met = verdict == TuningVerdict::met,
                               .bound = trials_.last_bound(),
                               .glance = trials_.last_glance()};
      if (!best_ || setting.better_than(*best_)) best_ = setting;
    }
    return verdict;
  };
  const TuningVerdict verdict = try_effort(0);
  if (verdict == TuningVerdict::missed) bisect(1, model.efforts.size(), try_effort);
  return verdict;
}

inline bool TuningSearch::Setting::better_than(const Setting& other) const {
  if (met != other.met) return met;
  return met ? glance < other.glance : bound > other.bound;
}

inline const TuningAxis* TuningSearch::to_refine() const {
  return best_ ? best_->axis->refined.get() : nullptr;
}

inline void TuningSearch::refine() {
  std::size_t models = best_->met && best_->effort == 0 ? best_->model : best_->model + 1;
  while (models > 0 && try_model(*best_->axis->refined, models - 1) == TuningVerdict::met) --models;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
