// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
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

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
