// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <Eigen/LU>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A⁻¹ of an invertible [n×n]. Cost: 4/3·n³ multiply-adds.
inline Eigen::MatrixXd inverse(const Eigen::MatrixXd& A) {
  return Eigen::PartialPivLU<Eigen::MatrixXd>(A).inverse();
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
