// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/svd/svd_preview.hpp"
#include "topksoftmax/svd/svd_softmax.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <Eigen/Core>
#include <cstddef>
#include <memory>
#include <utility>

#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/numeric/symmetric_eigen.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/rows/layer_moments.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/svd/svd_preview.hpp"
#include "topksoftmax/svd/svd_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE SvdPreview::SvdPreview(const SoftmaxLayer& layer, std::size_t width,
                                                const Executor& executor, const TrainingProgress& progress)
    : transform_(layer.transform()) {
  detail::tell(progress, "correlating the dimensions", 0.0);
  // V's columns are the eigenvectors of WᵀW, and UΣ is WV.
  const Eigen::MatrixXd squares = detail::layer_moments(layer, executor).gram();
  detail::tell(progress, "finding the singular directions", 0.6);
  const Eigen::MatrixXd V =
      detail::symmetric_eigen(squares, executor).vectors.leftCols(static_cast<Eigen::Index>(width));
  detail::tell(progress, "turning the rows", 0.7);
  directions_ = detail::StoredRows(V.transpose().cast<float>());
  RowMajorMatrix turned(static_cast<Eigen::Index>(layer.vocab()), V.cols());
  for_each_part(executor, layer.vocab(), detail::kLayerRowsAtOnce, [&](std::size_t first, std::size_t count) {
    const Eigen::MatrixXd rows = detail::rows_from(layer, first, count).cast<double>();
    turned.middleRows(static_cast<Eigen::Index>(first), rows.rows()) = (rows * V).cast<float>();
  });
  tokens_ = detail::StoredRows(turned, layer.biases());
  detail::tell(progress, "turning the rows", 1.0);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<SvdSoftmax> SvdSoftmax::build(SoftmaxLayer layer,
                                                                       const SvdSoftmaxOptions& options,
                                                                       const Executor& executor) {
  const SvdSoftmaxOptions all = detail::chosen_svd(options, layer);
  auto preview = std::make_shared<const SvdPreview>(layer, *all.preview_width, executor, all.progress);
  return std::unique_ptr<SvdSoftmax>(
      new SvdSoftmax(std::move(layer), SvdSoftmaxScreener(std::move(preview), *all.refine_width)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
