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

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Contexts whose largest coordinate is smaller are rounded to zero.
inline constexpr double kTooShortToRound = 2e-26;

/// x_j ≈ scale·n_j, as PrefixContext takes it; returns the scale, 0 for what is too short.
inline float round_to_shorts(const float* x, std::size_t width, std::int16_t* n) {
  const auto most = static_cast<float>(kernels::PrefixContext::largest(width));
  const float peak = kernels::largest_magnitude(x, width);
  const float scale = static_cast<double>(peak) > kTooShortToRound ? peak / most : 0.0F;
  kernels::round_to_shorts(x, width, scale > 0.0F ? 1.0F / scale : 0.0F, most, n);
  return scale;
}

/// How far a coordinate is from scale·n at the most. One too short to be divided counts as zero, wrong by as
/// much as the largest.
inline double rounded_to_shorts(float scale) {
  return 0.51 * (scale > 0.0F ? static_cast<double>(scale) : 2.0 * kTooShortToRound);
}

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
