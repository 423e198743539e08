// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

/// A copy of a layer's rows in int8 with a scale each, for finding rows in a quarter of the memory traffic.
///
/// w ≈ scale·q with scale = max|w_j| / 127, so every weight is within scale/2. Rows are padded with zeros to
/// whole vectors (`rows().dim` ≥ d: contexts must be padded alike) and begin on cache lines. The biases are
/// the layer's own.
class Int8Rows {
 public:
  /// Cost: O(V·d).
  explicit Int8Rows(const SoftmaxLayer& layer);

  const kernels::Rows& rows() const { return rows_; }
  /// Bytes kept beside the layer.
  std::size_t bytes() const;

 private:
  struct Free {
    void operator()(std::int8_t* p) const;
  };
  std::unique_ptr<std::int8_t, Free> weights_;
  std::vector<float> scales_;  ///< [V]
  kernels::Rows rows_;
};

}  // namespace topksoftmax
