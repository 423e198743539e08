// SPDX-License-Identifier: Apache-2.0
#include "screeners/svd_preview.hpp"

#include <Eigen/Eigenvalues>

#include "rows_of.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {

SvdPreview::SvdPreview(const SoftmaxLayer& layer, std::size_t width) {
  const RowMajorMatrix W = layer.weights();
  const Eigen::MatrixXd wide = W.cast<double>();
  // V's columns are the eigenvectors of WᵀW, and UΣ is WV.
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(wide.transpose() * wide);
  const Eigen::MatrixXd V =
      eigen.eigenvectors().rowwise().reverse().leftCols(static_cast<Eigen::Index>(width));
  directions_ = V.transpose().cast<float>();
  tokens_ = (wide * V).cast<float>();
  biases_ = layer.biases();
}

kernels::Rows SvdPreview::directions() const {
  return rows_of(directions_);
}

kernels::Rows SvdPreview::tokens() const {
  kernels::Rows rows = rows_of(tokens_);
  rows.bias = biases_.data();
  return rows;
}

void SvdPreview::logits(const float* h, float* turned, float* logits) const {
  const kernels::Implementation& kernel = kernels::active();
  kernel.scan(directions(), 0, width(), h, turned);
  kernel.scan(tokens(), 0, vocab(), turned, logits);
}

}  // namespace topksoftmax
