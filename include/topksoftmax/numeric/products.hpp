// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Products of large matrices on an executor's threads. The parts have fixed sizes, so that the bits are the
/// same for every executor: Eigen's own threads share work out by their number.
template <class Scalar>
using DenseMatrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;

/// XᵀX [d×d] of X [n×d]. Cost: n·d²/2 multiply-adds.
template <class Matrix>
DenseMatrix<typename Matrix::Scalar> gram(const Matrix& X, const Executor& executor) {
  constexpr std::size_t kColumns = 64;
  const Eigen::Index dim = X.cols();
  DenseMatrix<typename Matrix::Scalar> S(dim, dim);
  for_each_part(executor, static_cast<std::size_t>(dim), kColumns, [&](std::size_t first, std::size_t count) {
    const auto at = static_cast<Eigen::Index>(first);
    const auto wide = static_cast<Eigen::Index>(count);
    S.block(at, at, dim - at, wide).noalias() = X.rightCols(dim - at).transpose() * X.middleCols(at, wide);
  });
  S.template triangularView<Eigen::StrictlyUpper>() = S.transpose();
  return S;
}

/// Rows of a product that are made at a time.
inline constexpr std::size_t kProductRows = 1024;

/// A·B [n×m]. Cost: n·m·d multiply-adds.
template <class Scalar>
DenseMatrix<Scalar> product(const DenseMatrix<Scalar>& A, const DenseMatrix<Scalar>& B,
                            const Executor& executor) {
  DenseMatrix<Scalar> AB(A.rows(), B.cols());
  for_each_part(executor, static_cast<std::size_t>(A.rows()), kProductRows,
                [&](std::size_t first, std::size_t count) {
                  const auto at = static_cast<Eigen::Index>(first);
                  const auto some = static_cast<Eigen::Index>(count);
                  AB.middleRows(at, some).noalias() = A.middleRows(at, some) * B;
                });
  return AB;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
