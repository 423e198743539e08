// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/row_order.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/storage/value_at.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Memory of PrefixBlocks.
class TOPKSOFTMAX_EXPORT PrefixStore {
 public:
  PrefixStore() = default;
  /// `bytes` [blocks × block_bytes] begin on a cache line.
  PrefixStore(StoredArray<std::byte> bytes, std::size_t rows, std::size_t width, std::size_t int4_width = 0,
              std::size_t int2_width = 0)
      : bytes_(std::move(bytes)), blocks_{bytes_.data(), rows, width, int4_width, int2_width} {}

  /// Reads what save() has written under a name, of so many rows of these widths. Throws Error for biases
  /// that are NaN, and for scales and radii that are NaN or below 0.
  PrefixStore(const IndexReader& in, std::string_view name, std::size_t rows, std::size_t width,
              std::size_t int4_width = 0, std::size_t int2_width = 0);
  /// The tensor `name` U8 [blocks, block_bytes].
  void save(IndexWriter& out, std::string_view name) const;

  /// Throws Error unless the biases are those of the layer's rows, kept in this order.
  void check_biases(const IndexReader& in, std::string_view name, const RowOrder& order) const;

  const kernels::PrefixBlocks& blocks() const { return blocks_; }

  // What is stored of a row.
  float bias(std::size_t row) const;
  double scale(std::size_t row) const;
  double radius(std::size_t row) const;
  int coordinate(std::size_t row, std::size_t j) const;
  double code_radius(std::size_t row) const;
  double scale(std::size_t row, const kernels::PrefixCodes& codes) const;
  int code(std::size_t row, const kernels::PrefixCodes& codes, std::size_t j) const;

 private:
  const std::byte* block_of(std::size_t row) const {
    return bytes_.data() + row / kernels::PrefixBlocks::kRows * blocks_.block_bytes();
  }

  StoredArray<std::byte> bytes_;
  kernels::PrefixBlocks blocks_;
};

inline constexpr std::size_t kRows = kernels::PrefixBlocks::kRows;
/// Where a block's scales, radii and coordinates begin.
inline constexpr std::size_t kScales = kRows * sizeof(float);
inline constexpr std::size_t kRadii = kScales + kRows * sizeof(std::uint16_t);
/// The bias of rows that fill up the last block.
inline constexpr float kNoBias = -std::numeric_limits<float>::infinity();

/// Where a row's coordinate lies behind the first one of its block.
inline std::size_t offset_of(std::size_t row, std::size_t j) {
  return j / 4 * 64 + row % kRows * 4 + j % 4;
}

/// The same for a code: its byte, and how far up it lies in that.
inline std::size_t offset_of(std::size_t row, const kernels::PrefixCodes& codes, std::size_t j) {
  return codes.offset + j / codes.in_group() * 64 + row % kRows * 4 + j % 4;
}

inline std::size_t shift_of(const kernels::PrefixCodes& codes, std::size_t j) {
  return codes.bits * (j % codes.in_group() / 4);
}

inline float PrefixStore::bias(std::size_t row) const {
  return value_at<float>(block_of(row), row % kRows);
}

inline double PrefixStore::scale(std::size_t row) const {
  return bfloat16_value(value_at<std::uint16_t>(block_of(row) + kScales, row % kRows));
}

inline double PrefixStore::radius(std::size_t row) const {
  return bfloat16_value(value_at<std::uint16_t>(block_of(row) + kRadii, row % kRows));
}

inline int PrefixStore::coordinate(std::size_t row, std::size_t j) const {
  return std::to_integer<int>(block_of(row)[blocks_.q_offset() + offset_of(row, j)]) - 128;
}

inline double PrefixStore::code_radius(std::size_t row) const {
  constexpr std::size_t offset = kernels::PrefixBlocks::code_radius_offset();
  return bfloat16_value(value_at<std::uint16_t>(block_of(row) + offset, row % kRows));
}

inline double PrefixStore::scale(std::size_t row, const kernels::PrefixCodes& codes) const {
  return bfloat16_value(value_at<std::uint16_t>(block_of(row) + codes.scale_offset, row % kRows));
}

inline int PrefixStore::code(std::size_t row, const kernels::PrefixCodes& codes, std::size_t j) const {
  const auto byte = std::to_integer<unsigned>(block_of(row)[offset_of(row, codes, j)]);
  return static_cast<int>(byte >> shift_of(codes, j) & ((1U << codes.bits) - 1U));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/rows/prefix_store-inl.hpp"
#endif
