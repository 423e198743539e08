// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/half.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A bound on the relative error of n float roundings.
inline double roundings(std::size_t n) {
  return 1.01 * static_cast<double>(n) * 0x1p-24;
}

/// Doubles of a build are this good at the least, relative to what they measure.
inline constexpr double kOutward = 1.0 + 1e-9;

/// The least float that is not below x.
inline float up(double x) {
  const auto nearest = static_cast<float>(x);
  return static_cast<double>(nearest) >= x ? nearest
                                           : std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

/// The least bfloat16 that is not below x ≥ 0, as its bits.
inline std::uint16_t bfloat16_up(double x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(up(x));
  return static_cast<std::uint16_t>((bits + 0xffffU) >> 16);
}

inline double bfloat16_value(std::uint16_t bits) {
  return static_cast<double>(Bfloat16{bits});
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
