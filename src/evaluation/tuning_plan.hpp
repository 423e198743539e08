// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/training/progress.hpp"

namespace topksoftmax {

/// What there is to build from. Outlives the plan.
struct TuningMaterial {
  SoftmaxLayer layer;
  Contexts fit;
  std::vector<std::int64_t> counts;  ///< [V] or empty
  std::size_t k = 0;                 ///< at most V
  TrainingProgress progress;         ///< may throw to give learning up
};

/// Builds a backend.
using TuningBuild = std::function<std::shared_ptr<const TopKSoftmax>()>;

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
  /// The same models, learned with more pains: as fast, and more precise. Null: there are none.
  std::shared_ptr<const TuningAxis> refined = nullptr;
};

/// What is always tried: fused, certified and quantized, a setting each, the exact ones first.
std::vector<TuningAxis> standard_axes(const TuningMaterial& material);

/// What is searched: first what is quick to build and soon makes others too slow to be worth more than a
/// glance.
std::vector<TuningAxis> searched_axes(const TuningMaterial& material);

/// Settings that the search of an axis, refined or not, can come to.
std::size_t count_settings(const TuningAxis& axis);

}  // namespace topksoftmax
