// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// The first `width` coordinates of every row as int8, with what bounds the rest: 16 rows a block, so that
/// one instruction multiplies four coordinates of sixteen rows. A block is, in this order:
///   bias    16 × float32
///   scale   16 × bfloat16   w_j ≈ scale · q_j
///   radius  16 × bfloat16   how far the row's logit may be from the estimate, for a context of radius 1
///   q       width/4 × 16 × 4 × uint8, row r's coordinates 4g … 4g+3 at (16g + r)·4, as q + 128
/// Rows that fill the last block up have a bias of −∞.
struct PrefixBlocks {
  static constexpr std::size_t kRows = 16;
  static constexpr std::size_t kMaxWidth = 4096;
  /// Added to a radius as a share of the estimate, for the rounding of both and of the sum of them.
  static constexpr float kRounding = 0x1p-20F;
  /// Added to every radius, for products too small to be held.
  static constexpr float kSmallest = 1e-36F;
  static constexpr std::size_t kHeader = kRows * (sizeof(float) + 2 * sizeof(std::uint16_t));

  const std::byte* data = nullptr;  ///< aligned to 64 bytes
  std::size_t rows = 0;
  std::size_t width = 0;  ///< a multiple of 4, at most kMaxWidth

  std::size_t blocks() const { return (rows + kRows - 1) / kRows; }
  std::size_t block_bytes() const { return kHeader + kRows * width; }
  std::size_t bytes() const { return blocks() * block_bytes(); }

  /// The rows of blocks first … first + count − 1.
  PrefixBlocks part(std::size_t first, std::size_t count) const {
    const std::size_t behind = rows - first * kRows;
    return {data + first * block_bytes(), behind < count * kRows ? behind : count * kRows, width};
  }
};

/// A context's prefix as 15-bit integers: h_j ≈ scale · n_j.
struct PrefixContext {
  /// |n_j| at the most, so that Σ 128·n_j is an int32.
  static constexpr std::int32_t largest(std::size_t width) {
    const std::size_t most = (std::size_t{1} << 24) / (width == 0 ? 1 : width) - 1;
    return most < 16256 ? static_cast<std::int32_t>(most) : 16256;
  }

  const std::int16_t* n = nullptr;  ///< [width]
  float scale = 0.0F;
  float radius = 0.0F;  ///< what the rows' radii are multiplied by
};

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
