// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// Where the codes of a block's rows lie, of `bits` bits a coordinate: w_j ≈ scale · (2·u_j − 2^bits + 1).
/// Byte (16g + r)·4 + i has row r's coordinates 32/bits·g + 4s + i, i < 4, s < 8/bits, from its lowest bits
/// on.
struct PrefixCodes {
  std::size_t bits = 4;          ///< 2 or 4
  std::size_t width = 0;         ///< coordinates, a multiple of CodeContext::kSegment
  std::size_t scale_offset = 0;  ///< of 16 × bfloat16 in the block
  std::size_t offset = 0;        ///< of u in the block

  /// Coordinates of one byte.
  std::size_t in_byte() const { return 8 / bits; }
  /// Coordinates of four bytes of every row.
  std::size_t in_group() const { return 4 * in_byte(); }
};

/// The first `width` coordinates of every row as int8, `int4_width` and then `int2_width` more of them as
/// codes of four and two bits, with what bounds the rest: 16 rows a block, so that one instruction multiplies
/// four coordinates of sixteen rows. A block is, in this order:
///   bias         16 × float32
///   scale        16 × bfloat16   w_j ≈ scale · q_j
///   radius       16 × bfloat16   how far the row's logit may be from the estimate, for a context of radius 1
///   int4 scale   16 × bfloat16   of PrefixCodes; this and the next only where there are codes
///   code radius  16 × bfloat16   how far it may be off besides, for a context of code radius 1
///   int2 scale   16 × bfloat16   only where int2_width > 0, with 32 bytes of zeros, so that blocks are lines
///   q            width/4 × 16 × 4 × uint8, row r's coordinates 4g … 4g+3 at (16g + r)·4, as q + 128
///   u            int4_width/8 × 16 × 4 × uint8, then int2_width/16 × 16 × 4 × uint8: see PrefixCodes
/// Rows that fill the last block up have a bias of −∞.
struct PrefixBlocks {
  /// Rows of a block.
  static constexpr std::size_t kRows = 16;
  /// Added to a radius as a share of the estimate, for the rounding of both and of the sum of them.
  static constexpr float kRounding = 0x1p-20F;
  /// Added to every radius, for products too small to be held: that of two scales may be off by 2⁻¹⁵⁰, and
  /// meets a sum of up to 2³¹, four times in a row's bounds.
  static constexpr float kSmallest = 1e-35F;
  /// Bytes of a block before q, without those of codes.
  static constexpr std::size_t kHeader = kRows * (sizeof(float) + 2 * sizeof(std::uint16_t));
  /// Bytes that a scale of codes, or their radius, adds to these.
  static constexpr std::size_t kCodeHeader = kRows * sizeof(std::uint16_t);

  /// The width of so many coordinates in int8.
  static constexpr std::size_t width_for(std::size_t coordinates) { return (coordinates + 3) / 4 * 4; }

  const std::byte* data = nullptr;  ///< aligned to 64 bytes
  /// Rows, those that fill the last block up not counted.
  std::size_t rows = 0;
  std::size_t width = 0;       ///< a multiple of 4, at most kMaxWidth
  std::size_t int4_width = 0;  ///< a multiple of CodeContext::kSegment, at most kMaxWidth
  std::size_t int2_width = 0;  ///< likewise
  /// Bytes of the blocks that these are a part of; 0: of none.
  std::size_t whole_bytes = 0;

  /// Number of blocks.
  std::size_t blocks() const { return (rows + kRows - 1) / kRows; }
  /// Coordinates in codes.
  std::size_t code_width() const { return int4_width + int2_width; }
  /// Where a block's q begins.
  std::size_t q_offset() const {
    return kHeader + (code_width() > 0 ? 2 * kCodeHeader : 0) + (int2_width > 0 ? 2 * kCodeHeader : 0);
  }
  /// Where a block's code radii begin.
  static constexpr std::size_t code_radius_offset() { return kHeader + kCodeHeader; }
  /// Where the codes of four bits lie.
  PrefixCodes int4() const { return {4, int4_width, kHeader, q_offset() + kRows * width}; }
  /// Where the codes of two bits lie.
  PrefixCodes int2() const {
    return {2, int2_width, kHeader + 2 * kCodeHeader, int4().offset + kRows * int4_width / 2};
  }
  /// Bytes of a block.
  std::size_t block_bytes() const { return int2().offset + kRows * int2_width / 4; }
  /// Bytes of all blocks.
  std::size_t bytes() const { return blocks() * block_bytes(); }

  /// Whether they are more than a third cache holds, together with those that they are a part of.
  bool fill_caches() const { return (whole_bytes != 0 ? whole_bytes : bytes()) > kThirdCache; }

  /// The rows of blocks first … first + count − 1.
  PrefixBlocks part(std::size_t first, std::size_t count) const {
    PrefixBlocks some = *this;
    if (whole_bytes == 0) some.whole_bytes = bytes();
    some.data += first * block_bytes();
    const std::size_t behind = rows - first * kRows;
    some.rows = behind < count * kRows ? behind : count * kRows;
    return some;
  }
};

/// A context's coordinates that rows have as codes, as 8-bit integers: those of a segment by a step of their
/// own, which halves `shifts` times from one segment to the next. With n of segment g doubled shifts[g + 1] +
/// shifts[g + 2] + … times, h_j ≈ scale · n_j.
struct CodeContext {
  /// Coordinates that share a step.
  static constexpr std::size_t kSegment = 32;
  static constexpr std::int32_t kLargest = 127;  ///< |n_j| at the most
  /// All shifts together at the most, so that 240·Σ|n_j| over half of the coordinates is an int32.
  static constexpr int most_shifts(std::size_t width) {
    int shifts = 0;
    while ((width << (shifts + 1)) <= (std::size_t{1} << 17)) ++shifts;
    return shifts;
  }

  const std::int8_t* n = nullptr;        ///< [width of the codes]
  const std::uint8_t* shifts = nullptr;  ///< [that / kSegment], before each segment
  /// The step of the last segment.
  float scale = 0.0F;
  /// What is taken off Σ (2·u_j − 2^bits + 1)·n_j for the dither that the codes were made with: at most
  /// Σ|n_j| with all shifts.
  std::int32_t offset = 0;
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
  /// What meets the codes of four bits, where rows have such.
  CodeContext int4{};
  /// What meets those of two bits, likewise.
  CodeContext int2{};
  float code_radius = 0.0F;  ///< what the rows' code radii are multiplied by
};

/// A context that meets prefixes, and the bounds that come of it: of all rows, rounded up to whole blocks.
struct PrefixProducts {
  PrefixContext context;
  float* estimates = nullptr;
  float* radii = nullptr;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
