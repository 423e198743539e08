// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <vector>

#include "screeners/context_transform.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// A layer's rows in the coordinates that they are bounded in: see CertifiedScreener for the symbols.
struct RowCoordinates {
  RowCoordinates(const Eigen::MatrixXd& W, const ContextTransform& transform);

  Eigen::MatrixXd inside;   ///< w' [V×width]
  Eigen::VectorXd outside;  ///< ‖w⊥‖ [V]
  Eigen::VectorXd norms;    ///< ‖w‖ [V]
};

/// Contexts in the same coordinates.
struct ContextCoordinates {
  ContextCoordinates(const RowMajorMatrix& contexts, const ContextTransform& transform);

  Eigen::MatrixXd inside;   ///< h' [n×width]
  Eigen::VectorXd outside;  ///< ‖h⊥‖ [n]
  Eigen::VectorXd errors;   ///< E [n]
};

/// All rows in an order in which those of a block are near to each other where contexts differ.
std::vector<TokenId> similar_rows(const Eigen::VectorXd& biases, const RowCoordinates& rows,
                                  const ContextCoordinates& contexts);

}  // namespace topksoftmax
