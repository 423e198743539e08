// SPDX-License-Identifier: Apache-2.0
#include "screeners/bound_coordinates.hpp"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>

#include "screeners/row_order.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"

namespace topksoftmax {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// Leading coordinates that say which rows are similar.
constexpr Index kSimilarWidth = 16;

}  // namespace

RowCoordinates::RowCoordinates(const MatrixXd& W, const ContextTransform& transform) {
  const MatrixXd basis = transform.basis();
  inside = basis.householderQr().solve(W.transpose()).transpose();
  outside = (W - inside * basis.transpose()).rowwise().norm();
  norms = W.rowwise().norm();
}

ContextCoordinates::ContextCoordinates(const RowMajorMatrix& contexts, const ContextTransform& transform) {
  inside = contexts.cast<double>() * transform.basis();
  std::vector<float> projected(transform.room());
  std::vector<float> transformed(transform.room());
  outside.resize(contexts.rows());
  errors.resize(contexts.rows());
  for (Index i = 0; i < contexts.rows(); ++i) {
    transform.apply(contexts.row(i).data(), projected.data(), transformed.data());
    const auto sizes = transform.lengths(contexts.row(i).data(), projected.data(), transformed.data());
    outside[i] = transform.outside(sizes);
    errors[i] = transform.error(sizes);
  }
}

std::vector<TokenId> similar_rows(const VectorXd& biases, const RowCoordinates& rows,
                                  const ContextCoordinates& contexts) {
  const Index width = std::min<Index>(rows.inside.cols(), kSimilarWidth);
  const Index rest = rows.inside.cols() - width;
  const auto root_mean_square = [](const auto& x) {
    return std::sqrt(x.squaredNorm() / static_cast<double>(std::max<Index>(x.rows(), 1)));
  };
  MatrixXd points(rows.inside.rows(), width + 3);
  for (Index j = 0; j < width; ++j) {
    points.col(j) = rows.inside.col(j) * root_mean_square(contexts.inside.col(j));
  }
  points.col(width) = biases;
  points.col(width + 1) =
      rows.inside.rightCols(rest).rowwise().norm() * root_mean_square(contexts.inside.rightCols(rest));
  points.col(width + 2) = rows.outside * root_mean_square(contexts.outside);
  return similar_rows_together(points, kernels::PrefixBlocks::kRows);
}

}  // namespace topksoftmax
