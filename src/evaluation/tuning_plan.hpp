// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/training/contexts.hpp"

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

/// One setting of a system.
struct TuningPoint {
  std::string settings = {};
  std::string code = {};
  /// Called when the point is tried; points that only differ in their effort have the same.
  std::shared_ptr<const TuningBuild> build;
  std::size_t effort = 0;
};

/// A system's trade-off, from its fastest and least precise setting to its slowest and most precise.
struct TuningAxis {
  std::string backend;
  bool exact = false;  ///< whether its answers are, by proof
  std::vector<TuningPoint> points = {};
};

/// What is always tried: fused, certified and quantized, a point each, the exact ones first.
std::vector<TuningAxis> standard_axes(const TuningMaterial& material);

/// What is searched, the quickest to build first.
std::vector<TuningAxis> searched_axes(const TuningMaterial& material);

}  // namespace topksoftmax
