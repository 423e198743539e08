// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A copy of a layer's rows in int8 with a scale each, for finding rows in a quarter of the memory traffic.
///
/// w ≈ scale·q with scale = max|w_j| / 127, so every weight is within scale/2. Rows are padded with zeros to
/// whole vectors (`rows().dim` ≥ d: contexts must be padded alike) and begin on cache lines. The biases are
/// the layer's own.
class TOPKSOFTMAX_EXPORT Int8Rows {
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

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/fgd/int8_rows-inl.hpp"
#endif
