// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>

#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// W of low rank: the leading columns of UΣ and V, where W = UΣVᵀ.
class SvdPreview {
 public:
  /// Cost: V·d² + d³.
  SvdPreview(const SoftmaxLayer& layer, std::size_t width);

  /// The low-rank logits of all tokens: logits [V] = UΣ(Vᵀh) + b. turned [width] is scratch. Reads bytes().
  void logits(const float* h, float* turned, float* logits) const;

  std::size_t width() const { return static_cast<std::size_t>(directions_.rows()); }
  std::size_t vocab() const { return static_cast<std::size_t>(tokens_.rows()); }
  std::size_t bytes() const {
    return directions().bytes(directions().count) + tokens().bytes(tokens().count);
  }

 private:
  kernels::Rows directions() const;
  kernels::Rows tokens() const;

  RowMajorMatrix directions_;  ///< Vᵀ [width×d]
  RowMajorMatrix tokens_;      ///< UΣ [V×width]
  Eigen::VectorXf biases_;
};

}  // namespace topksoftmax
