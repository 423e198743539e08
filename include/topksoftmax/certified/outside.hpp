// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Writes them, for bounds of log Σ exp(logit) over the rows outside, low < high.
inline void put_outside_features(std::span<const float> coordinates, double low, double high,
                                 float* features) {
  features = std::copy(coordinates.begin(), coordinates.end(), features);
  const std::size_t paired = paired_coordinates(coordinates.size());
  for (std::size_t i = 0; i < paired; ++i) {
    for (std::size_t j = i; j < paired; ++j) *features++ = coordinates[i] * coordinates[j];
  }
  *features++ = static_cast<float>(std::max(low, high - CertifiedIndex::kWidest));
  *features = static_cast<float>(high);
}

/// What log Σ exp(logit) over the rows outside is, as learned from contexts, between its bounds; under a
/// mask, and without contexts to learn from, what it typically is between them.
inline double estimated_outside(const BoundedQuery& bounded, double low, double high) {
  const CertifiedIndex& index = bounded.index;
  const bool learned = index.outside_mass && bounded.query.edits.allowed.empty();
  if (!learned || !(low < high) || !std::isfinite(high)) return index.outside_between(low, high);
  const std::size_t width = index.stored_width();
  auto* const features = bounded.scratch().features.get<float>(outside_features(width));
  const float* const coordinates = bounded.bounds.coordinates;
  put_outside_features({coordinates, width}, low, high, features);
  const OutsideOf size = outside_of(bounded.query.k, index.options.expected_k);
  const std::size_t model = index.outside_model(coordinates, size);
  const double estimate = index.outside_mass->log_mass(model, features);
  return std::isfinite(estimate) ? std::clamp(estimate, low, high) : index.outside_between(low, high);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
