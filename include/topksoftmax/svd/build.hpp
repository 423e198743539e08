// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/svd/svd_preview.hpp"
#include "topksoftmax/svd/svd_softmax.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <cstddef>
#include <memory>
#include <utility>

#include "topksoftmax/numeric/products.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/svd/svd_preview.hpp"
#include "topksoftmax/svd/svd_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE SvdPreview::SvdPreview(const SoftmaxLayer& layer, std::size_t width,
                                                const Executor& executor)
    : transform_(layer.transform()) {
  const Eigen::MatrixXd W = layer.weights().cast<double>();
  // V's columns are the eigenvectors of WᵀW, and UΣ is WV.
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(detail::gram(W, executor));
  const Eigen::MatrixXd V =
      eigen.eigenvectors().rowwise().reverse().leftCols(static_cast<Eigen::Index>(width));
  directions_ = detail::StoredRows(V.transpose().cast<float>());
  tokens_ = detail::StoredRows(detail::product(W, V, executor).cast<float>(), layer.biases());
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<SvdSoftmax> SvdSoftmax::build(SoftmaxLayer layer,
                                                                       const SvdSoftmaxOptions& options,
                                                                       const Executor& executor) {
  const SvdSoftmaxOptions all = detail::chosen_svd(options, layer);
  auto preview = std::make_shared<const SvdPreview>(layer, *all.preview_width, executor);
  return std::unique_ptr<SvdSoftmax>(
      new SvdSoftmax(std::move(layer), SvdSoftmaxScreener(std::move(preview), *all.refine_width)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
