// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/registry.hpp"
#include "topksoftmax/registry/settings.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What there is to build from. Outlives the plan, as the registry does.
struct TuningMaterial {
  SoftmaxLayer layer;
  Contexts fit;
  std::span<const std::int64_t> counts;  ///< [V] or empty
  std::size_t k = 0;                     ///< at most V
  TrainingProgress progress;             ///< may throw to give learning up
  const Executor& executor;

  BuildMaterial to_build() const {
    return {.layer = layer, .contexts = fit, .counts = counts, .executor = executor, .progress = progress};
  }
};

/// Builds a backend.
using TuningBuild = std::function<std::shared_ptr<TopKSoftmax>()>;

/// What a query can be asked with: QueryOptions::effort, and what it is called.
struct TuningEffort {
  std::string settings = {};
  std::size_t effort = 0;
};

/// A backend that is built once, and asked with every effort from the fastest and least precise one on.
struct TuningModel {
  std::string settings = {};
  std::string code = {};
  TuningBuild build;
  std::vector<TuningEffort> efforts = {{}};  ///< at least one
};

/// A system's trade-off, from its fastest and least precise model to its slowest and most precise.
struct TuningAxis {
  std::string backend;
  bool exact = false;  ///< whether its answers are, by proof
  std::vector<TuningModel> models = {};
  /// The same models, learned with more effort: as fast, and more precise. Null: there are none.
  std::shared_ptr<const TuningAxis> refined = nullptr;
};

/// What is always tried, a setting each, by the turns of their plans. The first is exact.
std::vector<TuningAxis> standard_axes(const Registry& registry, const TuningMaterial& material);

/// What is searched, by the turns of their plans: first what is quick to build and soon makes others too slow
/// to be worth more than a glance.
std::vector<TuningAxis> searched_axes(const Registry& registry, const TuningMaterial& material);

/// Settings that the search of an axis, refined or not, can come to.
std::size_t count_settings(const TuningAxis& axis);

/// Settings in an order, as a table shows them: "clusters=30 budget=10".
struct ShownSettings {
  std::string text = {};
  Settings settings = {};

  ShownSettings with(const std::string& name, std::size_t value) const {
    ShownSettings more = *this;
    more.text += (text.empty() ? "" : " ") + name + "=" + std::to_string(value);
    more.settings[name] = std::to_string(value);
    return more;
  }
};

/// A backend and how it is tried.
struct PlannedBackend {
  BackendDescription backend;
  TuningPlan plan;
};

/// A plan with axes: where it has none, those of the description.
inline PlannedBackend planned(BackendDescription backend, TuningPlan plan) {
  if (!plan.always && plan.searches.empty() && !plan.models && !plan.efforts) {
    for (const OptionAxis& axis : backend.axes) {
      if (axis.effort) {
        plan.efforts = axis;
      } else {
        if (plan.models) plan.searches.push_back(*std::move(plan.models));
        plan.models = axis;
      }
    }
  }
  return {std::move(backend), std::move(plan)};
}

/// All that a registry has a plan for, wrapped ones too, by their turns.
inline std::vector<PlannedBackend> planned_backends(const Registry& registry) {
  std::vector<PlannedBackend> all;
  for (const BackendDescription& description : registry.descriptions()) {
    if (description.tuning) all.push_back(planned(description, *description.tuning));
    if (!description.wrapped.tuning) continue;
    for (const BackendDescription& wrapper : registry.wrappers()) {
      BackendDescription wrapped = registry.find(wrapper.name + ":" + description.name);
      TuningPlan plan = *wrapped.tuning;
      all.push_back(planned(std::move(wrapped), std::move(plan)));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const PlannedBackend& a, const PlannedBackend& b) {
    return a.plan.turn < b.plan.turn;
  });
  return all;
}

/// What a model built with these settings is asked with.
inline std::vector<TuningEffort> planned_efforts(const PlannedBackend& tried, const TuningMaterial& material,
                                                 const Settings& settings) {
  if (!tried.plan.efforts) return {{}};
  const OptionAxis& axis = *tried.plan.efforts;
  std::vector<TuningEffort> efforts;
  for (const std::size_t value : axis.values(material.layer, material.k)) {
    if (value == 0) {
      efforts.emplace_back();
    } else {
      efforts.push_back({.settings = axis.option + "=" + std::to_string(value),
                         .effort = axis.effort(value, tried.backend.values(settings))});
    }
  }
  if (efforts.empty()) efforts.emplace_back();
  return efforts;
}

inline TuningModel planned_model(const PlannedBackend& tried, const TuningMaterial& material,
                                 const ShownSettings& shown) {
  const Settings settings = tried.backend.suited_to(material.k, shown.settings);
  return {.settings = shown.text,
          .code = tried.backend.code(settings, !material.counts.empty()),
          .build = [backend = tried.backend, from = material.to_build(),
                    settings]() -> std::shared_ptr<TopKSoftmax> { return backend.build(from, settings); },
          .efforts = planned_efforts(tried, material, settings)};
}

/// The axis of a backend where `fixed` is already decided.
inline TuningAxis planned_axis(const PlannedBackend& tried, const TuningMaterial& material,
                               const ShownSettings& fixed) {
  TuningAxis axis{.backend = tried.backend.name, .exact = tried.backend.traits.exact};
  if (!tried.plan.models) {
    axis.models.push_back(planned_model(tried, material, fixed));
    return axis;
  }
  for (const std::size_t value : tried.plan.models->values(material.layer, material.k)) {
    axis.models.push_back(planned_model(tried, material, fixed.with(tried.plan.models->option, value)));
  }
  return axis;
}

/// Every combination of values of these options.
inline std::vector<ShownSettings> combinations(const std::vector<OptionAxis>& axes,
                                               const TuningMaterial& material) {
  std::vector<ShownSettings> all = {{}};
  for (const OptionAxis& axis : axes) {
    std::vector<ShownSettings> longer;
    for (const ShownSettings& one : all) {
      for (const std::size_t value : axis.values(material.layer, material.k))
        longer.push_back(one.with(axis.option, value));
    }
    all = std::move(longer);
  }
  return all;
}

inline std::vector<TuningAxis> standard_axes(const Registry& registry, const TuningMaterial& material) {
  std::vector<TuningAxis> axes;
  for (const PlannedBackend& tried : planned_backends(registry)) {
    if (tried.plan.always) axes.push_back(planned_axis(tried, material, {}));
  }
  return axes;
}

inline std::vector<TuningAxis> searched_axes(const Registry& registry, const TuningMaterial& material) {
  std::vector<TuningAxis> axes;
  for (const PlannedBackend& tried : planned_backends(registry)) {
    if (tried.plan.always || (tried.plan.needs_counts && material.counts.empty())) continue;
    for (const ShownSettings& fixed : combinations(tried.plan.searches, material)) {
      axes.push_back(planned_axis(tried, material, fixed));
      if (tried.plan.refined_by.empty()) continue;
      const PlannedBackend refined = {registry.find(tried.plan.refined_by), tried.plan};
      axes.back().refined = std::make_shared<const TuningAxis>(planned_axis(refined, material, fixed));
    }
  }
  return axes;
}

inline std::size_t count_settings(const TuningAxis& axis) {
  std::size_t count = axis.refined == nullptr ? 0 : count_settings(*axis.refined);
  for (const TuningModel& model : axis.models) count += model.efforts.size();
  return count;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
