// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/storage/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Memory of kernels::PrefixTails. Tails of no width take none, and are in no file.
class TOPKSOFTMAX_EXPORT TailStore {
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

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/certified/tails-inl.hpp"
#endif
