// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/bounds_view.hpp"
#include "topksoftmax/certified/divided_bounds.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What the logits of some of the layer's rows do not exceed, by their prefixes, or by the boxes that they
/// are in; +∞ for biased ones, whose bounds do not hold. False where the context has no bounds.
inline bool upper_bounds(const BoundedQuery& bounded, std::span<const TokenId> rows, float* most) {
  constexpr float kUnbounded = std::numeric_limits<float>::infinity();
  if (!bounded.bounds.usable) return false;
  const CertifiedIndex& index = bounded.index;
  const std::size_t rows_of_bound = index.has_boxes() ? kBlockRows : 1;
  auto* const estimates = bounded.scratch().opened.get<float>(2 * rows.size());
  float* const radii = estimates + rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t at = index.order.place(rows[i]) / rows_of_bound;
    estimates[i] = bounded.bounds.estimates[at];
    radii[i] = bounded.bounds.radii[at];
  }
  const BoundsView logits = logit_bounds(bounded, {estimates, radii, rows.size()});
  const kernels::LogitEdits& edits = bounded.query.edits;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    most[i] = edits.bias_of(rows[i]) == nullptr ? logits.most(i) : kUnbounded;
  }
  return true;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
