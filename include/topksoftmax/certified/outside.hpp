// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/outside_estimate.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// log Σ exp(logit) over the rows that the mask forbids and whose logits are below the cut: a query without
/// the mask would have them outside.
inline double forbidden_outside(const BoundedQuery& bounded, float cut, std::size_t& bytes_read) {
  const std::size_t rows = bounded.index.rows();
  const AllowedTokens& allowed = bounded.query.edits.allowed;
  const std::size_t forbidden = rows - allowed.count(rows);
  auto* const ids = bounded.scratch().forbidden.get<TokenId>(forbidden);
  auto* const logits = bounded.scratch().forbidden_logits.get<float>(forbidden);
  std::size_t count = 0;
  allowed.visit_forbidden(rows, [&](TokenId id) { ids[count++] = id; });
  scan_gathered(bounded.workspace, bounded.layer.rows(), ids, count, bounded.query.h, logits);
  bytes_read += bounded.layer.rows().bytes(count);
  const auto end = std::remove_if(logits, logits + count, [cut](float logit) { return logit >= cut; });
  return kernels::log_sum_exp(logits, static_cast<std::size_t>(end - logits));
}

/// What log Σ exp(logit) over the rows outside is, as learned from contexts, between its bounds: of all that
/// are below the cut, less those of them that a mask forbids. Under a mask that forbids more than a few, and
/// without contexts to learn from, what it typically is between its bounds.
inline double estimated_outside(const BoundedQuery& bounded, float cut, double low, double high,
                                std::size_t& bytes_read) {
  const OutsideEstimate& estimate = bounded.index.outside;
  if (!estimate.models || !OutsideMass::serves(bounded.query) || !(low < high) || !std::isfinite(high)) {
    return estimate.between(low, high);
  }
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  const bool masked = !bounded.query.edits.allowed.empty();
  const double forbidden = masked ? forbidden_outside(bounded, cut, bytes_read) : nothing;
  auto* const features = bounded.scratch().features.get<float>(estimate.features.count());
  const float* const coordinates = bounded.bounds.coordinates;
  estimate.features.put(coordinates, kernels::log_add_exp(low, forbidden),
                        kernels::log_add_exp(high, forbidden), features);
  const PlaceOfSize place(bounded.query.k, bounded.index.options.expected_k, bounded.index.rows());
  const double all = estimate.learned(coordinates, features, place);
  if (!std::isfinite(all)) return estimate.between(low, high);
  const double allowed = all > forbidden ? all + std::log1p(-std::exp(forbidden - all)) : nothing;
  return std::clamp(allowed, low, high);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
