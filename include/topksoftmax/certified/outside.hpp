// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What log Σ exp(logit) over the rows outside is, as learned from contexts, between its bounds; under a
/// mask, and without contexts to learn from, what it typically is between them.
inline double estimated_outside(const BoundedQuery& bounded, double low, double high) {
  const CertifiedIndex& index = bounded.index;
  const bool learned = index.outside_mass && bounded.query.edits.allowed.empty();
  if (!learned || !(low < high) || !std::isfinite(high)) return index.outside_between(low, high);
  auto* const features = bounded.scratch().features.get<float>(index.outside_features.count());
  const float* const coordinates = bounded.bounds.coordinates;
  index.outside_features.put(coordinates, low, high, features);
  const double estimate = index.learned_outside(coordinates, features, bounded.query.k);
  return std::isfinite(estimate) ? std::clamp(estimate, low, high) : index.outside_between(low, high);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
