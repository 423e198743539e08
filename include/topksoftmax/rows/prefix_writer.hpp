// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/coder.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// x_j ≈ scale·q_j, |q_j| ≤ 127.
inline void round_to_bytes(std::span<const double> x, double scale, std::int8_t* q) {
  std::transform(x.begin(), x.end(), q, [scale](double value) {
    const double steps = scale > 0.0 ? value / scale : 0.0;
    return static_cast<std::int8_t>(std::lround(std::clamp(steps, -127.0, 127.0)));
  });
}

/// The largest |x_j|, 0 for none.
inline double largest_magnitude(std::span<const double> x) {
  double largest = 0.0;
  for (const double value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Writes rows into memory of PrefixBlocks.
class PrefixWriter {
 public:
  /// Widths as PrefixBlocks has them. Rows that fill up the last block are finished.
  PrefixWriter(std::size_t rows, std::size_t width, std::size_t int4_width = 0, std::size_t int2_width = 0);

  const kernels::PrefixBlocks& blocks() const { return blocks_; }

  /// Writes a row's bias and its coordinates x [width] as bytes, which it also gives as q [width]; returns
  /// their scale.
  double put(std::size_t row, float bias, std::span<const double> x, std::int8_t* q);

  /// Writes a row's coordinates x [codes.width] as codes with a scale (coder.hpp) and dither [codes.width],
  /// and what they are now to x. `codes` is one of blocks().
  void put_codes(std::size_t row, const kernels::PrefixCodes& codes, std::uint16_t scale,
                 std::span<const float> dither, std::span<double> x);

  /// Writes a row of coordinates x ≥ 0 [width] that are rounded up, with a bias of 0.
  void put_up(std::size_t row, std::span<const double> x);

  /// Writes a row's radius, rounded up.
  void put_radius(std::size_t row, double radius);
  void put_code_radius(std::size_t row, double radius);

  /// Hands over what was written; nothing more can be.
  PrefixStore finish() &&;

 private:
  void put_header(std::size_t row, float bias, std::uint16_t scale);
  void put_coordinate(std::size_t row, std::size_t j, int q);

  std::byte* block_of(std::size_t row) {
    return storage_.get() + row / kernels::PrefixBlocks::kRows * blocks_.block_bytes();
  }

  AlignedStorage storage_;
  kernels::PrefixBlocks blocks_;
};

template <class T>
void put_at(std::byte* begin, std::size_t i, T value) {
  std::memcpy(begin + i * sizeof(value), &value, sizeof(value));
}

inline PrefixWriter::PrefixWriter(std::size_t rows, std::size_t width, std::size_t int4_width,
                                  std::size_t int2_width)
    : blocks_{.rows = rows, .width = width, .int4_width = int4_width, .int2_width = int2_width} {
  storage_ = aligned_zeros(blocks_.bytes());
  blocks_.data = storage_.get();
  for (std::size_t row = rows; row < blocks_.blocks() * kRows; ++row) {
    put_at(block_of(row), row % kRows, kNoBias);
  }
}

inline double PrefixWriter::put(std::size_t row, float bias, std::span<const double> x, std::int8_t* q) {
  const std::uint16_t scale = bfloat16_up(largest_magnitude(x) / 127.0);
  round_to_bytes(x, bfloat16_value(scale), q);
  put_header(row, bias, scale);
  for (std::size_t j = 0; j < x.size(); ++j) put_coordinate(row, j, q[j]);
  return bfloat16_value(scale);
}

inline void PrefixWriter::put_codes(std::size_t row, const kernels::PrefixCodes& codes, std::uint16_t scale,
                                    std::span<const float> dither, std::span<double> x) {
  std::byte* const block = block_of(row);
  put_at(block + codes.scale_offset, row % kRows, scale);
  const Coder coder(codes.bits, bfloat16_value(scale));
  for (std::size_t j = 0; j < x.size(); ++j) {
    const auto shift = static_cast<double>(dither[j]);
    const int u = coder.code(x[j], shift);
    block[offset_of(row, codes, j)] |= static_cast<std::byte>(u << shift_of(codes, j));
    x[j] = coder.value(u, shift);
  }
}

inline void PrefixWriter::put_up(std::size_t row, std::span<const double> x) {
  const std::uint16_t scale = bfloat16_up(largest_magnitude(x) / 126.0);  // the quotients may be rounded up
  const double step = bfloat16_value(scale);
  put_header(row, 0.0F, scale);
  for (std::size_t j = 0; j < x.size(); ++j) {
    put_coordinate(row, j, step > 0.0 && std::isfinite(step) ? static_cast<int>(std::ceil(x[j] / step)) : 0);
  }
}

inline void PrefixWriter::put_radius(std::size_t row, double radius) {
  put_at(block_of(row) + kRadii, row % kRows, bfloat16_up(radius));
}

inline void PrefixWriter::put_code_radius(std::size_t row, double radius) {
  put_at(block_of(row) + kernels::PrefixBlocks::code_radius_offset(), row % kRows, bfloat16_up(radius));
}

inline void PrefixWriter::put_header(std::size_t row, float bias, std::uint16_t scale) {
  put_at(block_of(row), row % kRows, bias);
  put_at(block_of(row) + kScales, row % kRows, scale);
}

inline void PrefixWriter::put_coordinate(std::size_t row, std::size_t j, int q) {
  block_of(row)[blocks_.q_offset() + offset_of(row, j)] = static_cast<std::byte>(q + 128);
}

inline PrefixStore PrefixWriter::finish() && {
  const std::shared_ptr<const std::byte> owner = std::move(storage_);
  return {{{owner.get(), blocks_.bytes()}, owner},
          blocks_.rows,
          blocks_.width,
          blocks_.int4_width,
          blocks_.int2_width};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
