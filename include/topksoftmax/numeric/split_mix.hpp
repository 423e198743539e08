// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Output number n of SplitMix64 (Steele, Lea and Flood 2014) with this seed: random bits by their number.
constexpr std::uint64_t split_mix(std::uint64_t seed, std::uint64_t n) {
  std::uint64_t x = seed + (n + 1) * 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
