// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The constants of SplitMix64 (Steele, Lea and Flood 2014).
struct SplitMix {
  static constexpr std::uint64_t kIncrement = 0x9E3779B97F4A7C15U;
  static constexpr std::uint64_t kFirstFactor = 0xBF58476D1CE4E5B9U;
  static constexpr std::uint64_t kSecondFactor = 0x94D049BB133111EBU;
};

/// What SplitMix64 makes of its state: numbers that look random even of dense ones.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * SplitMix::kFirstFactor;
  x = (x ^ (x >> 27)) * SplitMix::kSecondFactor;
  return x ^ (x >> 31);
}

/// Output number n of SplitMix64 with this seed: random bits by their number.
constexpr std::uint64_t split_mix(std::uint64_t seed, std::uint64_t n) {
  return mixed(seed + (n + 1) * SplitMix::kIncrement);
}

/// One of 2⁵³ equally likely numbers in [0, 1), by 64 random bits.
constexpr double unit_interval(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
