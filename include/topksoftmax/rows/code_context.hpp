// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/prefix_store.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A context's coordinates rounded: the scale of kernels::CodeContext, and ‖x − x̂‖ at the most.
struct RoundedToSegments {
  float scale;
  double lost;
};

/// Writes x [width] as n [width] and shifts [width / kSegment] of kernels::CodeContext.
inline RoundedToSegments round_to_segments(const float* x, std::size_t width, std::int8_t* n,
                                           std::uint8_t* shifts) {
  constexpr std::size_t kSegment = kernels::CodeContext::kSegment;
  constexpr auto kLargest = static_cast<float>(kernels::CodeContext::kLargest);
  const std::size_t segments = width / kSegment;
  constexpr int kMost = kernels::CodeContext::most_shifts(kSegment);
  const float peak = kernels::largest_magnitude(x, width);
  if (!(static_cast<double>(peak) > kTooShortToRound)) {
    std::fill_n(n, width, std::int8_t{0});
    std::fill_n(shifts, segments, std::uint8_t{0});
    return {0.0F, kTooShortToRound * std::sqrt(static_cast<double>(width))};
  }
  // A step is as often half the first one as serves all segments that follow.
  float following = 0.0F;
  for (std::size_t segment = segments; segment-- > 0;) {
    following = std::max(following, kernels::largest_magnitude(x + segment * kSegment, kSegment));
    const float ratio = following > 0.0F ? peak / following : std::numeric_limits<float>::infinity();
    const int halvings = ratio < std::ldexp(1.0F, kMost) ? std::ilogb(ratio) : kMost;
    shifts[segment] = static_cast<std::uint8_t>(std::min(halvings, kernels::CodeContext::most_shifts(width)));
  }
  float step = peak / kLargest;
  double lost = 0.0;
  int halved = 0;
  for (std::size_t segment = 0; segment < segments; ++segment) {
    const int halvings = shifts[segment];
    shifts[segment] = static_cast<std::uint8_t>(halvings - halved);
    step = std::ldexp(step, halved - halvings);
    halved = halvings;
    const float square = kernels::round_segment(x + segment * kSegment, 1.0F / step, n + segment * kSegment);
    // The quotient is rounded twice: off by 2⁻¹⁶ of a step at the most.
    const double off = std::sqrt(static_cast<double>(square) * (1.0 + 0x1p-16)) + 0x1p-12;
    lost += off * off * static_cast<double>(step) * static_cast<double>(step);
  }
  return {step, std::sqrt(lost) * kOutward};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
