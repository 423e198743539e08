// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/row_order.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE PrefixStore::PrefixStore(const IndexReader& in, std::string_view name, std::size_t rows,
                                            std::size_t width, std::size_t int4_width,
                                            std::size_t int2_width) {
  blocks_ = {.rows = rows, .width = width, .int4_width = int4_width, .int2_width = int2_width};
  bytes_ = in.array<std::byte>(name, {blocks_.blocks(), blocks_.block_bytes()}, DataType::uint8);
  blocks_.data = bytes_.data();
  const auto has_usable_codes = [&](std::size_t row) {
    return code_radius(row) >= 0.0 && (int4_width == 0 || scale(row, blocks_.int4()) >= 0.0) &&
           (int2_width == 0 || scale(row, blocks_.int2()) >= 0.0);
  };
  for (std::size_t row = 0; row < blocks_.blocks() * kRows; ++row) {
    const bool known = row < rows ? bias(row) <= std::numeric_limits<float>::max() : bias(row) == kNoBias;
    const bool usable = blocks_.code_width() == 0 || has_usable_codes(row);
    if (known && scale(row) >= 0.0 && radius(row) >= 0.0 && usable) continue;
    throw in.damaged(name, "has a bias, scale or radius that cannot be in row " + std::to_string(row));
  }
}

TOPKSOFTMAX_INLINE void PrefixStore::save(IndexWriter& out, std::string_view name) const {
  out.array(name, {blocks_.blocks(), blocks_.block_bytes()}, bytes_, DataType::uint8);
}

TOPKSOFTMAX_INLINE void PrefixStore::check_biases(const IndexReader& in, std::string_view name,
                                                  const RowOrder& order) const {
  const float* const biases = in.layer().rows().bias;
  for (std::size_t row = 0; row < blocks_.rows; ++row) {
    const float own = biases == nullptr ? 0.0F : biases[order.token(row)];
    if (bias(row) != own) {
      throw in.damaged(name, "has another bias than the layer in row " + std::to_string(row));
    }
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
