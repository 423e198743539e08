// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// Bounds of a sum.
struct SumBounds {
  /// What the sum is at least.
  double low;
  /// What the sum is at most.
  double high;
};

/// Numbers divided by whether they may reach a threshold.
struct Partition {
  std::size_t reaching;  ///< how many may
  SumBounds rest;        ///< bounds of Σ exp(x_i − threshold) over those that cannot
};

/// Elements that some kernels may write beyond the last: a vector's.
inline constexpr std::size_t kSlack = 16;

/// Coordinates of rows that are bounded in one sum, at most: more would leave contexts too few bits
/// (PrefixContext::largest).
inline constexpr std::size_t kMaxWidth = 16384;

/// Contexts that meet prefixes together at the most: in two bytes each they fill a tile's sixteen rows.
inline constexpr std::size_t kPrefixBatch = 8;

/// Bytes of rows that stay in the second cache while all contexts of a batch meet them.
inline constexpr std::size_t kPartBytes = std::size_t{512} * 1024;

/// Bytes that third caches are taken to hold.
inline constexpr std::size_t kThirdCache = std::size_t{16} << 20;

/// Values that are few enough to be ranked by comparing each with every other.
inline constexpr std::size_t kFew = 64;

/// Rows that the kernel `combine_rows` adds at a time, in two sums at the most.
inline constexpr std::size_t kCombined = 64;

/// Roundings that a product takes part in at the most when combine_rows adds `count` rows: its own, those of
/// its sum, of both and of the total.
constexpr std::size_t combine_roundings(std::size_t count) {
  return 1 + ((count < kCombined ? count : kCombined) + 1) / 2 + 2 + (count + kCombined - 1) / kCombined;
}

/// Values that the kernel `sum` adds at a time.
inline constexpr std::size_t kReadBlock = 8 * kSlack;

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
