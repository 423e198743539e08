// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/certified/coordinates.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A layer's rows in the coordinates that they are bounded in: see CertifiedScreener for the symbols.
struct RowCoordinates {
  RowCoordinates(const Eigen::MatrixXd& W, const ContextTransform& transform, const Executor& executor);

  Eigen::MatrixXd inside;   ///< w' [V×width]
  Eigen::VectorXd outside;  ///< ‖w⊥‖ [V]
  Eigen::VectorXd norms;    ///< ‖w‖ [V]
};

/// Contexts in the same coordinates.
struct ContextCoordinates {
  ContextCoordinates(const RowMajorMatrix& contexts, const ContextTransform& transform,
                     const Executor& executor);

  Eigen::MatrixXd inside;   ///< h' [n×width]
  Eigen::VectorXd outside;  ///< ‖h⊥‖ [n]
  Eigen::VectorXd errors;   ///< E [n]
};

inline RowCoordinates::RowCoordinates(const Eigen::MatrixXd& W, const ContextTransform& transform,
                                      const Executor& executor)
    : outside(W.rows()), norms(W.rows()) {
  const Eigen::MatrixXd basis = basis_of(transform);
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr = basis.householderQr();
  inside.resize(W.rows(), basis.cols());
  constexpr std::size_t kSolvedAtOnce = 1024;
  for_each_part(executor, static_cast<std::size_t>(W.rows()), kSolvedAtOnce,
                [&](std::size_t first, std::size_t count) {
                  const auto at = static_cast<Eigen::Index>(first);
                  const auto some = static_cast<Eigen::Index>(count);
                  const Eigen::MatrixXd rows = W.middleRows(at, some);
                  const Eigen::MatrixXd solved = qr.solve(rows.transpose()).transpose();
                  outside.segment(at, some) = (rows - solved * basis.transpose()).rowwise().norm();
                  norms.segment(at, some) = rows.rowwise().norm();
                  inside.middleRows(at, some) = solved;
                });
}

inline ContextCoordinates::ContextCoordinates(const RowMajorMatrix& contexts,
                                              const ContextTransform& transform, const Executor& executor)
    : inside(contexts.cast<double>() * basis_of(transform)),
      outside(contexts.rows()),
      errors(contexts.rows()) {
  constexpr std::size_t kTransformedAtOnce = 16;
  for_each_part(executor, static_cast<std::size_t>(contexts.rows()), kTransformedAtOnce,
                [&](std::size_t first, std::size_t count) {
                  std::vector<float> projected(transform.room());
                  std::vector<float> transformed(transform.room());
                  for (std::size_t i = first; i < first + count; ++i) {
                    const auto at = static_cast<Eigen::Index>(i);
                    const float* const h = contexts.row(at).data();
                    transform.apply(h, projected.data(), transformed.data());
                    const auto lengths = transform.lengths(h, projected.data(), transformed.data());
                    outside[at] = transform.outside(lengths);
                    errors[at] = transform.error(lengths);
                  }
                });
}

inline Eigen::Index widest_coordinate(const Eigen::MatrixXd& points, std::span<const TokenId> rows) {
  Eigen::VectorXd sum = Eigen::VectorXd::Zero(points.cols());
  Eigen::VectorXd squares = Eigen::VectorXd::Zero(points.cols());
  for (const TokenId row : rows) {
    sum += points.row(row).transpose();
    squares += points.row(row).transpose().cwiseAbs2();
  }
  Eigen::Index widest = 0;
  (squares - sum.cwiseAbs2() / static_cast<double>(rows.size())).maxCoeff(&widest);
  return widest;
}

/// Moves the rows that are low in the widest coordinate of all to the front, whole groups of them, about
/// half; returns how many.
inline std::size_t halve(const Eigen::MatrixXd& points, std::size_t group, std::span<TokenId> rows) {
  const Eigen::Index widest = widest_coordinate(points, rows);
  const std::size_t groups = (rows.size() + group - 1) / group;
  const std::size_t half = groups / 2 * group;
  std::nth_element(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(half), rows.end(),
                   [&points, widest](TokenId a, TokenId b) {
                     const double x = points(a, widest);
                     const double y = points(b, widest);
                     return x != y ? x < y : a < b;
                   });
  return half;
}

/// An order in which every `group` consecutive rows from a multiple of it on are near to each other: points
/// [V×n] are halved along their widest coordinate until so few are left. Cost: O(V·n·log V).
inline std::vector<TokenId> similar_rows_together(const Eigen::MatrixXd& points, std::size_t group,
                                                  const Executor& executor) {
  std::vector<TokenId> rows(static_cast<std::size_t>(points.rows()));
  std::iota(rows.begin(), rows.end(), TokenId{0});
  std::vector<std::span<TokenId>> parts = {rows};
  while (!parts.empty()) {
    std::vector<std::span<TokenId>> halves(2 * parts.size());
    for_each_part(executor, parts.size(), 1, [&](std::size_t i, std::size_t) {
      if (parts[i].size() <= group) return std::sort(parts[i].begin(), parts[i].end());
      const std::size_t half = halve(points, group, parts[i]);
      halves[2 * i] = parts[i].first(half);
      halves[2 * i + 1] = parts[i].subspan(half);
    });
    std::erase_if(halves, [](std::span<TokenId> part) { return part.empty(); });
    parts = std::move(halves);
  }
  return rows;
}

/// All rows in an order in which those of a block are near to each other where contexts differ.
inline std::vector<TokenId> similar_rows(const Eigen::VectorXd& biases, const RowCoordinates& rows,
                                         const ContextCoordinates& contexts, const Executor& executor) {
  // Leading coordinates that say which rows are similar.
  constexpr Eigen::Index kSimilarWidth = 16;
  const Eigen::Index width = std::min(rows.inside.cols(), kSimilarWidth);
  const Eigen::Index rest = rows.inside.cols() - width;
  const auto root_mean_square = [](const auto& x) {
    return std::sqrt(x.squaredNorm() / static_cast<double>(std::max<Eigen::Index>(x.rows(), 1)));
  };
  Eigen::MatrixXd points(rows.inside.rows(), width + 3);
  for (Eigen::Index j = 0; j < width; ++j) {
    points.col(j) = rows.inside.col(j) * root_mean_square(contexts.inside.col(j));
  }
  points.col(width) = biases;
  points.col(width + 1) =
      rows.inside.rightCols(rest).rowwise().norm() * root_mean_square(contexts.inside.rightCols(rest));
  points.col(width + 2) = rows.outside * root_mean_square(contexts.outside);
  return similar_rows_together(points, kernels::PrefixBlocks::kRows, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
