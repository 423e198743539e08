// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/certified/building/context_coordinates.hpp"
#include "topksoftmax/certified/building/row_projector.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/reported_parts.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The coordinate in which the points of some rows vary most.
inline Eigen::Index widest_coordinate(const Eigen::MatrixXf& points, std::span<const TokenId> rows) {
  Eigen::VectorXd sum = Eigen::VectorXd::Zero(points.cols());
  Eigen::VectorXd squares = Eigen::VectorXd::Zero(points.cols());
  for (const TokenId row : rows) {
    const Eigen::VectorXd point = points.row(row).transpose().cast<double>();
    sum += point;
    squares += point.cwiseAbs2();
  }
  Eigen::Index widest = 0;
  (squares - sum.cwiseAbs2() / static_cast<double>(rows.size())).maxCoeff(&widest);
  return widest;
}

/// Moves the rows that are low in the widest coordinate of all to the front, whole groups of them, about
/// half; returns how many.
inline std::size_t halve(const Eigen::MatrixXf& points, std::size_t group, std::span<TokenId> rows) {
  const Eigen::Index widest = widest_coordinate(points, rows);
  const std::size_t groups = (rows.size() + group - 1) / group;
  const std::size_t half = groups / 2 * group;
  std::nth_element(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(half), rows.end(),
                   [&points, widest](TokenId a, TokenId b) {
                     const float x = points(a, widest);
                     const float y = points(b, widest);
                     return x != y ? x < y : a < b;
                   });
  return half;
}

/// An order in which every `group` consecutive rows from a multiple of it on are near to each other: points
/// [V×n] are halved along their widest coordinate until so few are left. Tells `report` after every
/// round. Cost: O(V·n·log V).
inline std::vector<TokenId> similar_rows_together(const Eigen::MatrixXf& points, std::size_t group,
                                                  const StepProgress& report, const Executor& executor) {
  std::vector<TokenId> rows(static_cast<std::size_t>(points.rows()));
  std::iota(rows.begin(), rows.end(), TokenId{0});
  std::vector<std::span<TokenId>> parts = {rows};
  const auto rounds =
      static_cast<double>(1 + std::bit_width((rows.size() - 1) / group));  // the last one sorts
  for (int round = 1; !parts.empty(); ++round) {
    std::vector<std::span<TokenId>> halves(2 * parts.size());
    for_each_part(executor, parts.size(), 1, [&](std::size_t i, std::size_t) {
      if (parts[i].size() <= group) return std::sort(parts[i].begin(), parts[i].end());
      const std::size_t half = halve(points, group, parts[i]);
      halves[2 * i] = parts[i].first(half);
      halves[2 * i + 1] = parts[i].subspan(half);
    });
    std::erase_if(halves, [](std::span<TokenId> part) { return part.empty(); });
    parts = std::move(halves);
    if (report) report(round / rounds);
  }
  return rows;
}

/// All rows in an order in which those of a block are near to each other where contexts differ. Cost: that of
/// projecting all rows.
inline std::vector<TokenId> similar_rows(const SoftmaxLayer& layer, const RowProjector& projector,
                                         const ContextCoordinates& contexts, const StepProgress& report,
                                         const Executor& executor) {
  // Leading coordinates that say which rows are similar.
  constexpr Eigen::Index kSimilarWidth = 16;
  constexpr std::size_t kRowsAtOnce = 1024;
  // The share of the time that projecting them takes.
  constexpr double kProjected = 0.8;
  const auto all = static_cast<Eigen::Index>(projector.width());
  const Eigen::Index width = std::min(all, kSimilarWidth);
  const Eigen::Index rest = all - width;
  const auto root_mean_square = [](const auto& x) {
    return std::sqrt(x.squaredNorm() / static_cast<double>(std::max<Eigen::Index>(x.rows(), 1)));
  };
  Eigen::VectorXd weights(width + 3);
  for (Eigen::Index j = 0; j < width; ++j) weights[j] = root_mean_square(contexts.inside.col(j));
  weights[width] = 1.0;
  weights[width + 1] = root_mean_square(contexts.inside.rightCols(rest));
  weights[width + 2] = root_mean_square(contexts.outside);
  Eigen::MatrixXf points(static_cast<Eigen::Index>(layer.vocab()), width + 3);
  const auto place = [&](std::size_t first, std::size_t count) {
    std::vector<TokenId> tokens(count);
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(first));
    const RowCoordinates rows = projector.at(tokens);
    Eigen::MatrixXd some(rows.inside.rows(), width + 3);
    some << rows.inside.leftCols(width), biases_at(layer, tokens),
        rows.inside.rightCols(rest).rowwise().norm(), rows.outside;
    points.middleRows(static_cast<Eigen::Index>(first), some.rows()) =
        (some * weights.asDiagonal()).cast<float>();
  };
  for_each_reported_part(executor, layer.vocab(), kRowsAtOnce, share_of(report, 0.0, kProjected), place);
  return similar_rows_together(points, kernels::PrefixBlocks::kRows, share_of(report, kProjected, 1.0),
                               executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
