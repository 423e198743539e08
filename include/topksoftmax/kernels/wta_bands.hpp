// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// Bands of winner-take-all hashes. A unit looks at the first K values of a permutation of the vector and
/// says which of them is the largest, the first of equals; a band's code is its units' answers as the digits
/// of a number to the base K, the first unit's the highest.
///
/// Bands lie in groups of 16, so that a vector of lanes works on as many bands: element k of unit j of band w
/// is at positions[((w/16 · units + j) · K + k) · 16 + w%16]. The last group is filled up with bands that
/// look at value 0.
struct WtaBands {
  /// Bands of a group.
  static constexpr std::size_t kGroup = 16;

  const std::int32_t* positions = nullptr;  ///< [groups · units · K · 16], each below the vectors' length
  /// Number of groups.
  std::size_t groups = 0;
  std::size_t units = 0;  ///< at least 1
  std::size_t K = 0;      ///< at least 1; K^units < 2³¹

  /// The bands of groups first … first + count − 1.
  WtaBands part(std::size_t first, std::size_t count) const {
    return {positions + first * units * K * kGroup, count, units, K};
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
