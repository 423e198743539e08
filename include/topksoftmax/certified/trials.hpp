// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/certified/projections.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/numeric/products.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A few contexts with all their products, to see what an index makes of them.
struct Trials {
  /// Without contexts there is nothing to see. k is clamped to V.
  Trials(const SoftmaxLayer& layer, const Eigen::MatrixXd& W, RowMajorMatrix some, std::size_t k,
         const Executor& executor);

  std::size_t count() const { return static_cast<std::size_t>(contexts.rows()); }

  RowMajorMatrix contexts;     ///< [n×d]
  Eigen::MatrixXd products;    ///< w·h + b [V×n]
  Eigen::VectorXd thresholds;  ///< the k-th best product of each [n]
};

inline Trials::Trials(const SoftmaxLayer& layer, const Eigen::MatrixXd& W, RowMajorMatrix some, std::size_t k,
                      const Executor& executor)
    : contexts(std::move(some)),
      products(product<double>(W, contexts.cast<double>().transpose(), executor)),
      thresholds(contexts.rows()) {
  products.colwise() += layer.biases().cast<double>();
  for_each_part(executor, count(), 1, [&](std::size_t trial, std::size_t) {
    const auto i = static_cast<Eigen::Index>(trial);
    Eigen::VectorXd sorted = products.col(i);
    const auto kth = sorted.begin() + static_cast<Eigen::Index>(std::min(k, layer.vocab()) - 1);
    std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
    thresholds[i] = *kth;
  });
}

/// How many blocks and rows a prefix lets pass, in the mean over some contexts.
struct Passing {
  double boxes = 0.0;
  double rows = 0.0;
};

/// Rows as points, with the boxes around the blocks that they make in some order. Columns: the coordinates,
/// bias, ‖w'₂‖ and ‖w⊥‖, which a context meets with h'₁, 1, ‖h'₂‖ and ‖h⊥‖.
struct BoundPoints {
  BoundPoints(const RowCoordinates& rows, const Eigen::VectorXd& biases, std::span<const TokenId> order,
              std::size_t prefix, const Executor& executor);

  Eigen::MatrixXd points;  ///< [V×(prefix + 3)]
  Eigen::MatrixXd low;     ///< [blocks×(prefix + 3)]
  Eigen::MatrixXd high;
};

inline BoundPoints::BoundPoints(const RowCoordinates& rows, const Eigen::VectorXd& biases,
                                std::span<const TokenId> order, std::size_t prefix,
                                const Executor& executor) {
  constexpr std::size_t kRowsOfBox = kernels::PrefixBlocks::kRows;
  constexpr std::size_t kBlocksAtOnce = 512;
  const auto p = static_cast<Eigen::Index>(prefix);
  const Eigen::Index rest = rows.inside.cols() - p;
  const Eigen::VectorXd tails = rows.inside.rightCols(rest).rowwise().norm();
  const std::size_t blocks = (order.size() + kRowsOfBox - 1) / kRowsOfBox;
  low = Eigen::MatrixXd::Constant(static_cast<Eigen::Index>(blocks), p + 3,
                                  std::numeric_limits<double>::infinity());
  high = -low;
  points.resize(rows.inside.rows(), p + 3);
  points << rows.inside.leftCols(p), biases, tails, rows.outside;
  for_each_part(executor, blocks, kBlocksAtOnce, [&](std::size_t first, std::size_t count) {
    const std::size_t end = std::min((first + count) * kRowsOfBox, order.size());
    for (std::size_t place = first * kRowsOfBox; place < end; ++place) {
      const auto block = static_cast<Eigen::Index>(place / kRowsOfBox);
      const auto row = points.row(order[place]);
      low.row(block) = low.row(block).cwiseMin(row);
      high.row(block) = high.row(block).cwiseMax(row);
    }
  });
}

/// What this prefix lets pass of the rows, and of the blocks that they make in this order.
inline Passing count_passing(const RowCoordinates& rows, const Eigen::VectorXd& biases,
                             const Eigen::VectorXd& thresholds, const ContextCoordinates& contexts,
                             std::span<const TokenId> order, std::size_t prefix, const Executor& executor) {
  const BoundPoints bounds(rows, biases, order, prefix, executor);
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
inline std::vector<double> count_left(const Eigen::MatrixXd& W, const Eigen::VectorXd& biases,
                                      const Trials& trials, const Eigen::MatrixXd& directions,
                                      std::span<const std::size_t> widths) {
  constexpr Eigen::Index kSampledRows = 8192;
  const Eigen::Index sampled = std::min(W.rows(), kSampledRows);
  Eigen::MatrixXd sample(sampled, W.cols());
  Eigen::MatrixXd bounds(sampled, trials.contexts.rows());
  for (Eigen::Index i = 0; i < sampled; ++i) {
    const Eigen::Index row = i * W.rows() / sampled;
    sample.row(i) = W.row(row);
    bounds.row(i).setConstant(biases[row]);
  }
  const Eigen::MatrixXd rows = sample * directions;
  const Eigen::MatrixXd contexts = trials.contexts.cast<double>() * directions;
  std::vector<double> left;
  Eigen::Index first = 0;
  for (const std::size_t width : widths) {
    const auto end = static_cast<Eigen::Index>(width);
    bounds += rows.middleCols(first, end - first) * contexts.middleCols(first, end - first).transpose();
    const Eigen::Index rest = W.cols() - end;
    const Eigen::MatrixXd outside =
        rows.rightCols(rest).rowwise().norm() * contexts.rightCols(rest).rowwise().norm().transpose();
    const Eigen::MatrixXd missing = (bounds + outside).rowwise() - trials.thresholds.transpose();
    left.push_back(static_cast<double>((missing.array() >= 0.0).count()) * static_cast<double>(W.rows()) /
                   static_cast<double>(bounds.size()));
    first = end;
  }
  return left;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
