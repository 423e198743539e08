// SPDX-License-Identifier: Apache-2.0
#include "evaluation/tuning_search.hpp"

#include <memory>
#include <utility>

namespace topksoftmax {
namespace {

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

}  // namespace

TuningSearch::TuningSearch(TuningTrials& trials, std::function<void()> check_time)
    : trials_(trials), check_time_(std::move(check_time)) {}

void TuningSearch::run(const TuningAxis& axis) {
  bisect(0, axis.models.size(), [&](std::size_t model) { return try_model(axis, model); });
}

TuningVerdict TuningSearch::try_model(const TuningAxis& axis, std::size_t number) {
  const TuningModel& model = axis.models[number];
  std::shared_ptr<const TopKSoftmax> built;
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

bool TuningSearch::Setting::better_than(const Setting& other) const {
  if (met != other.met) return met;
  return met ? glance < other.glance : bound > other.bound;
}

const TuningAxis* TuningSearch::to_refine() const {
  return best_ ? best_->axis->refined.get() : nullptr;
}

void TuningSearch::refine() {
  std::size_t models = best_->met && best_->effort == 0 ? best_->model : best_->model + 1;
  while (models > 0 && try_model(*best_->axis->refined, models - 1) == TuningVerdict::met) --models;
}

}  // namespace topksoftmax
