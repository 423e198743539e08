// SPDX-License-Identifier: Apache-2.0
#include "screeners/svd_preview.hpp"

#include <Eigen/Eigenvalues>

#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

SvdPreview::SvdPreview(const SoftmaxLayer& layer, std::size_t width) {
  const RowMajorMatrix W = layer.weights();
  const Eigen::MatrixXd wide = W.cast<double>();
  // V's columns are the eigenvectors of WᵀW, and UΣ is WV.
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(wide.transpose() * wide);
  const Eigen::MatrixXd V =
      eigen.eigenvectors().rowwise().reverse().leftCols(static_cast<Eigen::Index>(width));
  directions_ = StoredRows(V.transpose().cast<float>());
  tokens_ = StoredRows((wide * V).cast<float>(), layer.biases());
}

SvdPreview::SvdPreview(const IndexReader& in, std::size_t width)
    : directions_(in.floats("directions", {width, in.dim()}), in.dim()),
      tokens_(in.floats("tokens", {in.vocab(), width}), width, StoredArray<float>::own(in.layer().biases())) {
}

void SvdPreview::save(IndexWriter& out) const {
  out.array("directions", {directions_.count(), directions_.dim()}, directions_.weights());
  out.array("tokens", {tokens_.count(), tokens_.dim()}, tokens_.weights());
}

void SvdPreview::logits(const float* h, float* turned, float* logits) const {
  const kernels::Implementation& kernel = kernels::active();
  kernel.scan(directions_.rows(), 0, width(), h, turned);
  kernel.scan(tokens_.rows(), 0, vocab(), turned, logits);
}

}  // namespace topksoftmax
