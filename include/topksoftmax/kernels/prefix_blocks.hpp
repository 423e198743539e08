// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// The first `width` coordinates of every row as int8, `int4_width` more of them as int4, with what bounds
/// the rest: 16 rows a block, so that one instruction multiplies four coordinates of sixteen rows. A block
/// is, in this order:
///   bias         16 × float32
///   scale        16 × bfloat16   w_j ≈ scale · q_j
///   radius       16 × bfloat16   how far the row's logit may be from the estimate, for a context of radius 1
///   int4 scale   16 × bfloat16   w_j ≈ scale · (2·u_j − 15); this and the next only where int4_width > 0
///   int4 radius  16 × bfloat16   how far it may be off besides, for a context of int4 radius 1
///   q            width/4 × 16 × 4 × uint8, row r's coordinates 4g … 4g+3 at (16g + r)·4, as q + 128
///   u            int4_width/8 × 16 × 4 × uint8, row r's coordinates 8g + i and 8g + 4 + i, i < 4,
///                in the lower and the upper half of byte (16g + r)·4 + i
/// Rows that fill the last block up have a bias of −∞.
struct PrefixBlocks {
  /// Rows of a block.
  static constexpr std::size_t kRows = 16;
  /// Coordinates in int8, and in int4, at most.
  static constexpr std::size_t kMaxWidth = 4096;
  /// Added to a radius as a share of the estimate, for the rounding of both and of the sum of them.
  static constexpr float kRounding = 0x1p-20F;
  /// Added to every radius, for products too small to be held.
  static constexpr float kSmallest = 1e-36F;
  /// Bytes of a block before q, without int4's.
  static constexpr std::size_t kHeader = kRows * (sizeof(float) + 2 * sizeof(std::uint16_t));
  /// Bytes that int4 adds to these.
  static constexpr std::size_t kInt4Header = kRows * 2 * sizeof(std::uint16_t);

  const std::byte* data = nullptr;  ///< aligned to 64 bytes
  /// Rows, those that fill the last block up not counted.
  std::size_t rows = 0;
  std::size_t width = 0;       ///< a multiple of 4, at most kMaxWidth
  std::size_t int4_width = 0;  ///< a multiple of Int4Context::kSegment, at most kMaxWidth

  /// Number of blocks.
  std::size_t blocks() const { return (rows + kRows - 1) / kRows; }
  /// Where a block's q and u begin.
  std::size_t q_offset() const { return kHeader + (int4_width > 0 ? kInt4Header : 0); }
  /// Where a block's u begins.
  std::size_t int4_offset() const { return q_offset() + kRows * width; }
  /// Bytes of a block.
  std::size_t block_bytes() const { return int4_offset() + kRows * int4_width / 2; }
  /// Bytes of all blocks.
  std::size_t bytes() const { return blocks() * block_bytes(); }

  /// The rows of blocks first … first + count − 1.
  PrefixBlocks part(std::size_t first, std::size_t count) const {
    const std::size_t behind = rows - first * kRows;
    return {data + first * block_bytes(), behind < count * kRows ? behind : count * kRows, width, int4_width};
  }
};

/// A context's coordinates that rows have as int4, as 8-bit integers: those of a segment by a step of their
/// own, which halves `shifts` times from one segment to the next. With n of segment g doubled shifts[g + 1] +
/// shifts[g + 2] + … times, h_j ≈ scale · n_j.
struct Int4Context {
  /// Coordinates that share a step.
  static constexpr std::size_t kSegment = 32;
  static constexpr std::int32_t kLargest = 127;  ///< |n_j| at the most
  /// All shifts together at the most, so that 240·Σ|n_j| over half of the coordinates is an int32.
  static constexpr int most_shifts(std::size_t width) {
    int shifts = 0;
    while ((width << (shifts + 1)) <= (std::size_t{1} << 17)) ++shifts;
    return shifts;
  }

  const std::int8_t* n = nullptr;        ///< [int4_width]
  const std::uint8_t* shifts = nullptr;  ///< [int4_width / kSegment], before each segment
  /// The step of the last segment.
  float scale = 0.0F;
  float radius = 0.0F;  ///< what the rows' int4 radii are multiplied by
};

/// A context's prefix as 15-bit integers: h_j ≈ scale · n_j.
struct PrefixContext {
  /// |n_j| at the most, so that Σ 128·n_j is an int32.
  static constexpr std::int32_t largest(std::size_t width) {
    const std::size_t most = (std::size_t{1} << 24) / (width == 0 ? 1 : width) - 1;
    return most < 16256 ? static_cast<std::int32_t>(most) : 16256;
  }

  const std::int16_t* n = nullptr;  ///< [width]
  /// The step.
  float scale = 0.0F;
  float radius = 0.0F;  ///< what the rows' radii are multiplied by
  Int4Context int4{};   ///< where rows have such coordinates
};

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
