// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Whether no value is NaN or infinite. Integer arithmetic without a branch, in lanes that compilers turn
/// into vectors even where they weigh how many values there may be.
inline bool all_finite(const float* values, std::size_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000U;
  constexpr std::size_t kLanes = 16;
  const auto is_not = [values](std::size_t i) {
    return static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent);
  };
  std::uint32_t found[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) found[j] |= is_not(i + j);
  }
  for (; i < count; ++i) found[0] |= is_not(i);
  std::uint32_t any = 0;
  for (const std::uint32_t one : found) any |= one;
  return any == 0;
}

/// Where the first value is that is NaN or infinite; `count` where none is, which costs what all_finite()
/// does.
inline std::size_t first_not_finite(const float* values, std::size_t count) {
  if (all_finite(values, count)) return count;
  const auto is_finite = [](float value) { return std::isfinite(value); };
  return static_cast<std::size_t>(std::find_if_not(values, values + count, is_finite) - values);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
