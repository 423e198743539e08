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
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/rows/aligned_storage.hpp"
#include "topksoftmax/rows/stored_array.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A copy of a layer's rows in int8 with a scale each, for finding rows in a quarter of the memory traffic.
///
/// w ≈ scale·q with scale = max|w_j| / 127, so every weight is within scale/2. Rows are padded with zeros to
/// whole vectors (`rows().dim` ≥ d: contexts must be padded alike) and begin on cache lines. The biases are
/// the layer's own.
class Int8Rows {
 public:
  /// Cost: O(V·d).
  explicit Int8Rows(const SoftmaxLayer& layer);

  /// Reads what save() has written.
  explicit Int8Rows(const IndexReader& in);
  /// The tensors "rows" I8 [V, d rounded up to 64] and "rows.scales" F32 [V].
  void save(IndexWriter& out) const;

  const kernels::Rows& rows() const { return rows_; }
  /// Bytes kept beside the layer.
  std::size_t bytes() const;

 private:
  /// The layer's rows, with nothing yet in place of its weights.
  static kernels::Rows shape_for(const SoftmaxLayer& layer);
  void use(StoredArray<std::int8_t> weights, StoredArray<float> scales);

  StoredArray<std::int8_t> weights_;  ///< [V×stride]
  StoredArray<float> scales_;         ///< [V]
  kernels::Rows rows_;
};

/// Values of the widest vector that kernels load: rows of whole vectors have no tail.
inline constexpr std::size_t kWidestVector = 16;

inline std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

inline kernels::Rows Int8Rows::shape_for(const SoftmaxLayer& layer) {
  kernels::Rows rows = layer.rows();
  rows.type = WeightType::int8;
  rows.dim = round_up(layer.dim(), kWidestVector);
  rows.stride = round_up(layer.dim(), static_cast<std::size_t>(FreeAligned::kCacheLine));
  return rows;
}

inline void Int8Rows::use(StoredArray<std::int8_t> weights, StoredArray<float> scales) {
  weights_ = std::move(weights);
  scales_ = std::move(scales);
  rows_.data = weights_.data();
  rows_.scales = scales_.data();
}

inline Int8Rows::Int8Rows(const SoftmaxLayer& layer) : rows_(shape_for(layer)) {
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

inline Int8Rows::Int8Rows(const IndexReader& in) : rows_(shape_for(in.layer())) {
  use(in.array<std::int8_t>("rows", {rows_.count, rows_.stride}), in.floats("rows.scales", {rows_.count}));
}

inline void Int8Rows::save(IndexWriter& out) const {
  out.array("rows", {rows_.count, rows_.stride}, weights_);
  out.array("rows.scales", {rows_.count}, scales_);
}

inline std::size_t Int8Rows::bytes() const {
  return rows_.count * (rows_.stride + sizeof(float));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
