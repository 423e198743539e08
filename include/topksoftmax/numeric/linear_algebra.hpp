// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>

#include "topksoftmax/config.hpp"

// Compilers take a second for each product of Eigen's, again for each kind of operands. Here all are of one
// kind: a file that includes this compiles each once.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A matrix in columns, or a block of one, without a copy; of other expressions it holds the value.
using MatrixView = Eigen::Ref<const Eigen::MatrixXd, 0, Eigen::OuterStride<>>;

/// AB [n×m] of [n×d] and [d×m]. Cost: n·d·m multiply-adds.
inline Eigen::MatrixXd times(const MatrixView& A, const MatrixView& B) {
  return A * B;
}

/// ABᵀ [n×m] of [n×d] and [m×d]. Cost: n·d·m multiply-adds.
inline Eigen::MatrixXd times_transposed(const MatrixView& A, const MatrixView& B) {
  return A * B.transpose();
}

/// AᵀB [n×m] of [d×n] and [d×m]. Cost: n·d·m multiply-adds.
inline Eigen::MatrixXd transposed_times(const MatrixView& A, const MatrixView& B) {
  return A.transpose() * B;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
