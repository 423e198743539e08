// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "topksoftmax/certified/tails.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE TailStore::TailStore(const IndexReader& in, std::size_t rows, std::size_t width)
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

TOPKSOFTMAX_INLINE void TailStore::save(IndexWriter& out) const {
  if (!empty()) out.array(kName, {tails_.rows, tails_.row_bytes()}, bytes_, DataType::uint8);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
