// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/certified/layer_rows.hpp"
#include "topksoftmax/certified/projections.hpp"
#include "topksoftmax/certified/row_projector.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/rows/largest.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A few contexts with what their answers must reach, to see what an index makes of them.
struct Trials {
  /// Without contexts there is nothing to see. k is clamped to V. Cost: V·d multiply-adds a context.
  Trials(const SoftmaxLayer& layer, RowMajorMatrix some, std::size_t k, const Executor& executor);

  std::size_t count() const { return static_cast<std::size_t>(contexts.rows()); }

  RowMajorMatrix contexts;     ///< [n×d]
  Eigen::VectorXd thresholds;  ///< the k-th best product w·h + b of each [n]
};

inline Trials::Trials(const SoftmaxLayer& layer, RowMajorMatrix some, std::size_t k, const Executor& executor)
    : contexts(std::move(some)), thresholds(contexts.rows()) {
  constexpr std::size_t kScannedTogether = 4;
  kernels::Rows rows = layer.rows();
  rows.transform = {};  // of products
  for_each_part(executor, count(), kScannedTogether, [&](std::size_t first, std::size_t together) {
    std::vector<float> products(together * layer.vocab());
    kernels::scan_batch(rows, contexts.row(static_cast<Eigen::Index>(first)).data(), layer.dim(), together,
                        products.data());
    for (std::size_t i = 0; i < together; ++i) {
      thresholds[static_cast<Eigen::Index>(first + i)] = static_cast<double>(
          kth_largest(products.data() + i * layer.vocab(), layer.vocab(), std::min(k, layer.vocab())));
    }
  });
}

/// How many blocks and rows a prefix lets pass, in the mean over some contexts.
struct Passing {
  double boxes = 0.0;
  double rows = 0.0;
};

/// Rows as points, with the boxes around each sixteen. Columns: the coordinates,
/// bias, ‖w'₂‖ and ‖w⊥‖, which a context meets with h'₁, 1, ‖h'₂‖ and ‖h⊥‖.
struct BoundPoints {
  BoundPoints(const RowCoordinates& rows, const Eigen::VectorXd& biases, std::size_t prefix,
              const Executor& executor);

  Eigen::MatrixXd points;  ///< [n×(prefix + 3)]
  Eigen::MatrixXd low;     ///< [blocks×(prefix + 3)]
  Eigen::MatrixXd high;
};

inline BoundPoints::BoundPoints(const RowCoordinates& rows, const Eigen::VectorXd& biases, std::size_t prefix,
                                const Executor& executor) {
  constexpr std::size_t kRowsOfBox = kernels::PrefixBlocks::kRows;
  constexpr std::size_t kBlocksAtOnce = 512;
  const auto p = static_cast<Eigen::Index>(prefix);
  const Eigen::Index rest = rows.inside.cols() - p;
  const Eigen::VectorXd tails = rows.inside.rightCols(rest).rowwise().norm();
  const auto total = static_cast<std::size_t>(rows.inside.rows());
  const std::size_t blocks = (total + kRowsOfBox - 1) / kRowsOfBox;
  low = Eigen::MatrixXd::Constant(static_cast<Eigen::Index>(blocks), p + 3,
                                  std::numeric_limits<double>::infinity());
  high = -low;
  points.resize(rows.inside.rows(), p + 3);
  points << rows.inside.leftCols(p), biases, tails, rows.outside;
  for_each_part(executor, blocks, kBlocksAtOnce, [&](std::size_t first, std::size_t count) {
    const std::size_t end = std::min((first + count) * kRowsOfBox, total);
    for (std::size_t place = first * kRowsOfBox; place < end; ++place) {
      const auto block = static_cast<Eigen::Index>(place / kRowsOfBox);
      const auto row = points.row(static_cast<Eigen::Index>(place));
      low.row(block) = low.row(block).cwiseMin(row);
      high.row(block) = high.row(block).cwiseMax(row);
    }
  });
}

/// What this prefix lets pass of some rows, and of the blocks that each sixteen of them make.
inline Passing count_passing(const RowCoordinates& rows, const Eigen::VectorXd& biases,
                             const Eigen::VectorXd& thresholds, const ContextCoordinates& contexts,
                             std::size_t prefix, const Executor& executor) {
  const BoundPoints bounds(rows, biases, prefix, executor);
  const auto p = static_cast<Eigen::Index>(prefix);
  const Eigen::Index rest = rows.inside.cols() - p;
  const auto trials = static_cast<std::size_t>(contexts.inside.rows());
  std::vector<Passing> each(trials);
  for_each_part(executor, trials, 1, [&](std::size_t trial, std::size_t) {
    const auto i = static_cast<Eigen::Index>(trial);
    Eigen::VectorXd h(p + 3);
    h << contexts.inside.row(i).head(p).transpose(), 1.0, contexts.inside.row(i).tail(rest).norm(),
        contexts.outside[i];
    each[trial].rows = static_cast<double>(((bounds.points * h).array() >= thresholds[i]).count());
    const Eigen::VectorXd upper = bounds.high * h.cwiseMax(0.0) + bounds.low * h.cwiseMin(0.0);
    each[trial].boxes = static_cast<double>((upper.array() >= thresholds[i]).count());
  });
  Passing passing;
  for (const Passing& of_one : each) {
    passing.rows += of_one.rows;
    passing.boxes += of_one.boxes;
  }
  passing.rows /= static_cast<double>(trials);
  passing.boxes /= static_cast<double>(trials);
  return passing;
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
  const Eigen::MatrixXd rows = rows_at(layer, tokens).cast<double>() * directions;
  const Eigen::MatrixXd contexts = trials.contexts.cast<double>() * directions;
  std::vector<double> left;
  Eigen::Index first = 0;
  for (const std::size_t width : widths) {
    const auto end = static_cast<Eigen::Index>(width);
    bounds += rows.middleCols(first, end - first) * contexts.middleCols(first, end - first).transpose();
    const Eigen::Index rest = dim - end;
    const Eigen::MatrixXd outside =
        rows.rightCols(rest).rowwise().norm() * contexts.rightCols(rest).rowwise().norm().transpose();
    const Eigen::MatrixXd missing = (bounds + outside).rowwise() - trials.thresholds.transpose();
    left.push_back(static_cast<double>((missing.array() >= 0.0).count()) *
                   static_cast<double>(layer.vocab()) / static_cast<double>(bounds.size()));
    first = end;
  }
  return left;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
