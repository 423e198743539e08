// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Bounds of some numbers: each is within its radius of its estimate.
struct BoundsView {
  const float* estimates = nullptr;
  const float* radii = nullptr;
  std::size_t count = 0;

  /// `some` of them, from number `first` on.
  BoundsView part(std::size_t first, std::size_t some) const {
    return {estimates + first, radii + first, some};
  }

  /// What number i is at most; +∞ for what is NaN.
  float most(std::size_t i) const {
    constexpr float kUnbounded = std::numeric_limits<float>::infinity();
    const float bound = estimates[i] + radii[i];
    return bound < kUnbounded ? bound : kUnbounded;
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
