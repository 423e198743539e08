// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Whether no value is NaN or infinite. Integer arithmetic without a branch, which compilers turn into
/// vectors.
inline bool all_finite(const float* values, std::size_t count) {
  constexpr std::uint32_t exponent = 0x7f800000U;
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & exponent) == exponent);
  }
  return found == 0;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
