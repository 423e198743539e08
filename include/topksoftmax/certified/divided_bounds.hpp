// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/types.hpp"

// Which numbers may reach a threshold, by their bounds, and what the others sum up to.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Bounds of some logits.
struct LogitBounds {
  const float* estimates;
  const float* radii;
};

/// What the layer's transform makes of bounds of products: these themselves where it leaves them.
inline LogitBounds logit_bounds(const BoundedQuery& bounded, const float* estimates, const float* radii,
                                std::size_t count) {
  const LogitTransform& transform = bounded.layer.transform();
  if (transform.is_identity()) return {estimates, radii};
  auto* const to_estimates = bounded.scratch().transformed.get<float>(2 * count);
  float* const to_radii = to_estimates + count;
  kernels::transform_bounds(transform, estimates, radii, count, to_estimates, to_radii);
  return {to_estimates, to_radii};
}

/// Writes which products may have logits that reach the threshold to `reaching`; the sum of the others only
/// where it is asked for.
inline kernels::Partition divide_bounds(const BoundedQuery& bounded, const float* estimates,
                                        const float* radii, std::size_t count, float threshold,
                                        TokenId* reaching) {
  if (!bounded.query.probabilities) {
    const float product = kernels::lowest_product(bounded.layer.transform(), threshold);
    return {kernels::reaching(estimates, radii, count, product, reaching), {}};
  }
  const LogitBounds logits = logit_bounds(bounded, estimates, radii, count);
  return kernels::partition(logits.estimates, logits.radii, count, threshold, reaching);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
