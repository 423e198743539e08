// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/aligned_storage.hpp"
#include "topksoftmax/rows/prefix_writer.hpp"
#include "topksoftmax/rows/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Memory of kernels::PrefixTails. Tails of no width take none, and are in no file.
class TailStore {
 public:
  TailStore() = default;
  TailStore(StoredArray<std::byte> bytes, std::size_t rows, std::size_t width)
      : bytes_(std::move(bytes)), tails_{bytes_.data(), rows, width} {}

  /// Reads what save() has written, of so many rows of this width. Throws Error for scales and radii that are
  /// NaN or below 0.
  TailStore(const IndexReader& in, std::size_t rows, std::size_t width);
  /// The tensor "tails" U8 [V, row_bytes].
  void save(IndexWriter& out) const;

  const kernels::PrefixTails& tails() const { return tails_; }
  bool empty() const { return tails_.width == 0; }
  std::size_t bytes() const { return bytes_.size(); }
  /// Values that a context needs behind its prefix, to meet all that a row stores.
  std::size_t context_room() const { return empty() ? 0 : tails_.row_bytes(); }

 private:
  static constexpr const char* kName = "tails";

  StoredArray<std::byte> bytes_;
  kernels::PrefixTails tails_;
};

/// Writes rows into such memory. Different rows may be written at the same time.
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

inline TailStore::TailStore(const IndexReader& in, std::size_t rows, std::size_t width)
    : tails_{nullptr, rows, width} {
  if (empty()) return;
  bytes_ = in.array<std::byte>(kName, {rows, tails_.row_bytes()}, DataType::uint8);
  tails_.data = bytes_.data();
  for (std::size_t row = 0; row < rows; ++row) {
    const kernels::PrefixTails::Footer footer = tails_.footer(tails_.row(row));
    if (footer.scale >= 0.0F && footer.radius >= 0.0F) continue;
    throw in.damaged(kName, "has a scale or radius that is NaN or below 0 in row " + std::to_string(row));
  }
}

inline void TailStore::save(IndexWriter& out) const {
  if (!empty()) out.array(kName, {tails_.rows, tails_.row_bytes()}, bytes_, DataType::uint8);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
