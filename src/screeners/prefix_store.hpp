// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "aligned_storage.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"

namespace topksoftmax {

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
    n[j] = static_cast<std::int16_t>(std::lrint(std::clamp(x[j] * inverse, -most, most)));
  }
  return scale;
}

/// Memory of PrefixBlocks, and how rows are written into it.
class PrefixStore {
 public:
  PrefixStore() = default;
  /// `width` is a multiple of 4. Rows that fill up the last block are finished.
  PrefixStore(std::size_t rows, std::size_t width);

  const kernels::PrefixBlocks& blocks() const { return blocks_; }

  /// Writes a row's bias and its coordinates x [width] as bytes, which it also gives as q [width]; returns
  /// their scale.
  double put(std::size_t row, float bias, std::span<const double> x, std::int8_t* q);

  /// Writes a row's radius, rounded up.
  void put_radius(std::size_t row, double radius);

 private:
  std::byte* block_of(std::size_t row) {
    return storage_.get() + row / kernels::PrefixBlocks::kRows * blocks_.block_bytes();
  }

  AlignedStorage storage_;
  kernels::PrefixBlocks blocks_;
};

}  // namespace topksoftmax
