// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "topksoftmax/certified/tails.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/prefix_writer.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Writes rows into memory of kernels::PrefixTails. Different rows may be written at the same time.
class TailWriter {
 public:
  TailWriter(std::size_t rows, std::size_t width)
      : tails_{nullptr, rows, width}, storage_(aligned_zeros(width == 0 ? 0 : tails_.bytes())) {
    tails_.data = storage_.get();
  }

  /// A row's coordinates as they are stored: x_j ≈ scale·q_j.
  struct Coordinates {
    double scale;
    const std::int8_t* q;
  };

  /// Writes a row's coordinates x [width], width ≥ 1.
  Coordinates put(std::size_t row, std::span<const double> x) {
    std::byte* const begin = row_at(row);
    const float scale = up(largest_magnitude(x) / 127.0);
    auto* const q = reinterpret_cast<std::int8_t*>(begin);
    round_to_bytes(x, static_cast<double>(scale), q);
    tails_.put_footer(begin, {scale, 0.0F});
    return {static_cast<double>(scale), q};
  }

  /// Writes a row's radius, rounded up, behind its coordinates.
  void put_radius(std::size_t row, double radius) {
    std::byte* const begin = row_at(row);
    tails_.put_footer(begin, {tails_.footer(begin).scale, up(radius)});
  }

  /// Hands over what was written; nothing more can be.
  TailStore finish() && {
    const std::size_t bytes = tails_.width == 0 ? 0 : tails_.bytes();
    const std::shared_ptr<const std::byte> owner = std::move(storage_);
    return {{{owner.get(), bytes}, owner}, tails_.rows, tails_.width};
  }

 private:
  std::byte* row_at(std::size_t row) { return storage_.get() + row * tails_.row_bytes(); }

  kernels::PrefixTails tails_;
  AlignedStorage storage_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
