// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace topksoftmax::bench {

/// Logits and bounds beyond this could leave float's range: nothing is bounded then.
inline constexpr double kLargestLogit = 1e30;

/// Rounds a length up, whatever it was computed from.
inline float outwards(double length) {
  return static_cast<float>(length * (1.0 + 1e-6));
}

}  // namespace topksoftmax::bench
