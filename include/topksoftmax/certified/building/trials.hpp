// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/certified/building/context_coordinates.hpp"
#include "topksoftmax/certified/building/row_projector.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/largest.hpp"
#include "topksoftmax/numeric/linear_algebra.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A few contexts with what their answers must reach, to see what an index makes of them.
struct Trials {
  /// Without contexts there is nothing to see. k is `wanted`, or V. Cost: V·d multiply-adds a context.
  Trials(const SoftmaxLayer& layer, RowMajorMatrix some, std::size_t wanted, const Executor& executor);

  std::size_t count() const { return static_cast<std::size_t>(contexts.rows()); }

  std::size_t k;
  RowMajorMatrix contexts;     ///< [n×d]
  Eigen::VectorXd thresholds;  ///< the k-th best product w·h + b of each [n]
};

inline Trials::Trials(const SoftmaxLayer& layer, RowMajorMatrix some, std::size_t wanted,
                      const Executor& executor)
    : k(std::min(wanted, layer.vocab())), contexts(std::move(some)), thresholds(contexts.rows()) {
  constexpr std::size_t kScannedTogether = 4;
  const kernels::Rows rows = layer.products();
  for_each_part(executor, count(), kScannedTogether, [&](std::size_t first, std::size_t together) {
    std::vector<float> products(together * layer.vocab());
    kernels::scan_batch(rows, contexts.row(static_cast<Eigen::Index>(first)).data(), layer.dim(), together,
                        products.data());
    for (std::size_t i = 0; i < together; ++i) {
      thresholds[static_cast<Eigen::Index>(first + i)] =
          static_cast<double>(kth_largest(products.data() + i * layer.vocab(), layer.vocab(), k));
    }
  });
}

/// Rows as points [n×(width + 3)] in some leading coordinates. Columns: these, bias, the lengths of the
/// others and of w⊥, which a context meets with h', 1, the length of its others and ‖h⊥‖: bound_context().
inline Eigen::MatrixXd bound_points(const RowCoordinates& rows, const Eigen::VectorXd& biases,
                                    std::size_t width) {
  const auto w = static_cast<Eigen::Index>(width);
  Eigen::MatrixXd points(rows.inside.rows(), w + 3);
  points << rows.inside.leftCols(w), biases, rows.inside.rightCols(rows.inside.cols() - w).rowwise().norm(),
      rows.outside;
  return points;
}

inline Eigen::VectorXd bound_context(const ContextCoordinates& contexts, Eigen::Index i, std::size_t width) {
  const auto w = static_cast<Eigen::Index>(width);
  Eigen::VectorXd h(w + 3);
  h << contexts.inside.row(i).head(w).transpose(), 1.0,
      contexts.inside.row(i).tail(contexts.inside.cols() - w).norm(), contexts.outside[i];
  return h;
}

/// How many bounds reach the thresholds, in the mean over some contexts: bounds_of(h) are those of one.
template <class BoundsOf>
double count_reaching(const Eigen::VectorXd& thresholds, const ContextCoordinates& contexts,
                      std::size_t width, const Executor& executor, const BoundsOf& bounds_of) {
  const auto trials = static_cast<std::size_t>(contexts.inside.rows());
  std::vector<double> each(trials);
  for_each_part(executor, trials, 1, [&](std::size_t trial, std::size_t) {
    const auto i = static_cast<Eigen::Index>(trial);
    const Eigen::VectorXd bounds = bounds_of(bound_context(contexts, i, width));
    each[trial] = static_cast<double>((bounds.array() >= thresholds[i]).count());
  });
  double sum = 0.0;
  for (const double of_one : each) sum += of_one;
  return sum / static_cast<double>(trials);
}

/// How many of some rows a prefix lets pass.
inline double count_rows_passing(const RowCoordinates& rows, const Eigen::VectorXd& biases,
                                 const Eigen::VectorXd& thresholds, const ContextCoordinates& contexts,
                                 std::size_t prefix, const Executor& executor) {
  const Eigen::MatrixXd points = bound_points(rows, biases, prefix);
  return count_reaching(thresholds, contexts, prefix, executor,
                        [&](const Eigen::VectorXd& h) -> Eigen::VectorXd { return points * h; });
}

/// How many boxes around each sixteen of them are opened, where these have so many coordinates.
inline double count_boxes_passing(const RowCoordinates& rows, const Eigen::VectorXd& biases,
                                  const Eigen::VectorXd& thresholds, const ContextCoordinates& contexts,
                                  std::size_t width, const Executor& executor) {
  constexpr auto kRowsOfBox = static_cast<Eigen::Index>(kernels::PrefixBlocks::kRows);
  const Eigen::MatrixXd points = bound_points(rows, biases, width);
  const Eigen::Index boxes = (points.rows() + kRowsOfBox - 1) / kRowsOfBox;
  Eigen::MatrixXd low(boxes, points.cols());
  Eigen::MatrixXd high(boxes, points.cols());
  for (Eigen::Index box = 0; box < boxes; ++box) {
    const Eigen::Index first = box * kRowsOfBox;
    const auto of_box = points.middleRows(first, std::min(kRowsOfBox, points.rows() - first));
    low.row(box) = of_box.colwise().minCoeff();
    high.row(box) = of_box.colwise().maxCoeff();
  }
  return count_reaching(thresholds, contexts, width, executor,
                        [&](const Eigen::VectorXd& h) -> Eigen::VectorXd {
                          return high * h.cwiseMax(0.0) + low * h.cwiseMin(0.0);
                        });
}

/// How many rows of a layer may reach the thresholds by their first coordinates, in the mean over some
/// contexts, for each of some ascending widths. Some rows stand for all.
inline std::vector<double> count_left(const SoftmaxLayer& layer, const Trials& trials,
                                      const Eigen::MatrixXd& directions,
                                      std::span<const std::size_t> widths) {
  constexpr std::size_t kSampledRows = 8192;
  const std::vector<TokenId> tokens = evenly_spaced_tokens(layer, kSampledRows);
  const auto dim = static_cast<Eigen::Index>(layer.dim());
  Eigen::MatrixXd bounds = biases_at(layer, tokens).replicate(1, trials.contexts.rows());
  const Eigen::MatrixXd rows = times(rows_at(layer, tokens).cast<double>(), directions);
  const Eigen::MatrixXd contexts = times(trials.contexts.cast<double>(), directions);
  std::vector<double> left;
  Eigen::Index first = 0;
  for (const std::size_t width : widths) {
    const auto end = static_cast<Eigen::Index>(width);
    bounds += times_transposed(rows.middleCols(first, end - first), contexts.middleCols(first, end - first));
    const Eigen::Index rest = dim - end;
    const Eigen::MatrixXd outside =
        times_transposed(rows.rightCols(rest).rowwise().norm(), contexts.rightCols(rest).rowwise().norm());
    const Eigen::MatrixXd missing = (bounds + outside).rowwise() - trials.thresholds.transpose();
    left.push_back(static_cast<double>((missing.array() >= 0.0).count()) *
                   static_cast<double>(layer.vocab()) / static_cast<double>(bounds.size()));
    first = end;
  }
  return left;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
