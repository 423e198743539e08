// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// Bounds of a sum.
struct SumBounds {
  double low;
  double high;
};

/// Numbers divided by whether they may reach a threshold.
struct Partition {
  std::size_t reaching;  ///< how many may
  SumBounds rest;        ///< bounds of Σ exp(x_i − threshold) over those that cannot
};

/// Elements that some kernels may write beyond the last: a vector's.
inline constexpr std::size_t kSlack = 16;

/// Values that are few enough to be ranked by comparing each with every other.
inline constexpr std::size_t kFew = 64;

/// Values that the kernel `sum` adds at a time.
inline constexpr std::size_t kReadBlock = 8 * kSlack;

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
