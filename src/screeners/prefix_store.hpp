// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "aligned_storage.hpp"
#include "screeners/row_order.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/stored_array.hpp"

namespace topksoftmax {

class IndexReader;
class IndexWriter;

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

/// Contexts whose largest coordinate is smaller are rounded to zero.
constexpr double kTooShortToRound = 2e-26;

/// x_j ≈ scale·n_j, as PrefixContext takes it; returns the scale, 0 for what is too short.
inline float round_to_shorts(const float* x, std::size_t width, std::int16_t* n) {
  const auto most = static_cast<float>(kernels::PrefixContext::largest(width));
  float peak = 0.0F;
  for (std::size_t j = 0; j < width; ++j) peak = std::max(peak, std::abs(x[j]));
  const float scale = static_cast<double>(peak) > kTooShortToRound ? peak / most : 0.0F;
  const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
  for (std::size_t j = 0; j < width; ++j) {
    const float steps = std::min(most, std::max(-most, x[j] * inverse));  // in this order NaN is a number too
    n[j] = static_cast<std::int16_t>(steps + std::copysign(0.5F, steps));
  }
  return scale;
}

/// Memory of PrefixBlocks.
class PrefixStore {
 public:
  PrefixStore() = default;
  /// `bytes` [blocks × block_bytes] begin on a cache line.
  PrefixStore(StoredArray<std::byte> bytes, std::size_t rows, std::size_t width)
      : bytes_(std::move(bytes)), blocks_{bytes_.data(), rows, width} {}

  /// Reads what save() has written under a name, of so many rows of this width, a multiple of 4. Throws Error
  /// for biases that are NaN, and for scales and radii that are NaN or below 0.
  PrefixStore(const IndexReader& in, std::string_view name, std::size_t rows, std::size_t width);
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

 private:
  const std::byte* block_of(std::size_t row) const {
    return bytes_.data() + row / kernels::PrefixBlocks::kRows * blocks_.block_bytes();
  }

  StoredArray<std::byte> bytes_;
  kernels::PrefixBlocks blocks_;
};

/// Writes rows into memory of PrefixBlocks.
class PrefixWriter {
 public:
  /// `width` is a multiple of 4. Rows that fill up the last block are finished.
  PrefixWriter(std::size_t rows, std::size_t width);

  /// Writes a row's bias and its coordinates x [width] as bytes, which it also gives as q [width]; returns
  /// their scale.
  double put(std::size_t row, float bias, std::span<const double> x, std::int8_t* q);

  /// Writes a row of coordinates x ≥ 0 [width] that are rounded up, with a bias of 0.
  void put_up(std::size_t row, std::span<const double> x);

  /// Writes a row's radius, rounded up.
  void put_radius(std::size_t row, double radius);

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

}  // namespace topksoftmax
