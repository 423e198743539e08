// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// An IEEE binary16 as it is stored.
struct Float16 {
  std::uint16_t bits;

  /// The one that a file has at p, the lower byte first, aligned or not.
  static Float16 at(const std::uint8_t* p) { return {static_cast<std::uint16_t>(p[0] | p[1] << 8)}; }

  /// Its value, which every float holds.
  explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffU) << 13;
    // An exponent of all ones stays one, others are 112 higher; what is subnormal is a whole number of 2⁻²⁴.
    // No float on the way is subnormal: a thread may take such for zero.
    const float value = magnitude >= 0x0f800000U   ? std::bit_cast<float>(magnitude | 0x7f800000U)
                        : magnitude >= 0x00800000U ? std::bit_cast<float>(magnitude + 0x38000000U)
                                                   : static_cast<float>(magnitude >> 13) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  explicit operator double() const { return static_cast<float>(*this); }
};

/// A bfloat16 as it is stored: the upper half of a float.
struct Bfloat16 {
  std::uint16_t bits;

  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  explicit operator double() const { return static_cast<float>(*this); }
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
