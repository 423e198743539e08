// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/fgd/int8_rows.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"
#include "topksoftmax/storage/cache_line.hpp"
#include "topksoftmax/storage/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Values of the widest vector that kernels load: rows of whole vectors have no tail.
inline constexpr std::size_t kWidestVector = 16;

inline std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

TOPKSOFTMAX_INLINE kernels::Rows Int8Rows::shape_for(const SoftmaxLayer& layer) {
  kernels::Rows rows = layer.products();  // not logits: where a soft cap makes many alike, a walk would end
  rows.type = WeightType::int8;
  rows.dim = round_up(layer.dim(), kWidestVector);
  rows.stride = round_up(layer.dim(), kCacheLine);
  return rows;
}

TOPKSOFTMAX_INLINE void Int8Rows::use(StoredArray<std::int8_t> weights, StoredArray<float> scales) {
  weights_ = std::move(weights);
  scales_ = std::move(scales);
  rows_.data = weights_.data();
  rows_.scales = scales_.data();
}

TOPKSOFTMAX_INLINE Int8Rows::Int8Rows(const SoftmaxLayer& layer) : rows_(shape_for(layer)) {
  const std::size_t bytes = layer.vocab() * rows_.stride;
  const std::shared_ptr<std::byte> storage = aligned_zeros(bytes);
  auto* const weights = reinterpret_cast<std::int8_t*>(storage.get());
  std::vector<float> scales(layer.vocab());
  std::vector<float> row(layer.dim());
  for (std::size_t token = 0; token < layer.vocab(); ++token) {
    layer.copy_row(token, row.data());
    float largest = 0.0F;
    for (const float w : row) largest = std::max(largest, std::abs(w));
    scales[token] = largest / 127.0F;
    if (largest == 0.0F) continue;
    std::transform(row.begin(), row.end(), weights + token * rows_.stride, [largest](float w) {
      return static_cast<std::int8_t>(std::lround(w / largest * 127.0F));
    });
  }
  use({{weights, bytes}, storage}, StoredArray<float>::own(std::move(scales)));
}

TOPKSOFTMAX_INLINE Int8Rows::Int8Rows(const IndexReader& in) : rows_(shape_for(in.layer())) {
  use(in.array<std::int8_t>("rows", {rows_.count, rows_.stride}), in.floats("rows.scales", {rows_.count}));
}

TOPKSOFTMAX_INLINE void Int8Rows::save(IndexWriter& out) const {
  out.array("rows", {rows_.count, rows_.stride}, weights_);
  out.array("rows.scales", {rows_.count}, scales_);
}

TOPKSOFTMAX_INLINE std::size_t Int8Rows::bytes() const {
  return rows_.count * (rows_.stride + sizeof(float));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
