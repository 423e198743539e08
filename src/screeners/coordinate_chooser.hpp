// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>

#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// Coordinates h' = RQh of contexts, and with them those of rows: see CertifiedScreener.
struct CoordinateBasis {
  Eigen::MatrixXd Q;  ///< [width×d], orthonormal rows
  Eigen::MatrixXd R;  ///< [width×width]
};

/// Learns coordinates of any width from the rows of a layer and from contexts.
class CoordinateChooser {
 public:
  /// W [V×d]; contexts [N×d] may be empty. Cost: O(V·d² + N·d² + d³). Throws Error for coordinates of the
  /// contexts without any.
  CoordinateChooser(const Eigen::MatrixXd& W, const RowMajorMatrix& contexts, BoundCoordinates kind);

  /// For a width of at most d. Cost: O(d²·width).
  CoordinateBasis choose(std::size_t width) const;

  /// Orthonormal columns [d×d]: the rows of Q are the leading ones, whatever the width.
  const Eigen::MatrixXd& directions() const { return directions_; }

  /// What lies along each direction of E‖w‖², in shares of it [d]. Cost: O(d³).
  Eigen::VectorXd row_shares() const;

 private:
  BoundCoordinates kind_;
  Eigen::MatrixXd contexts_;    ///< E[hhᵀ] [d×d], with a trace of 1
  Eigen::MatrixXd rows_;        ///< E[wwᵀ] [d×d], likewise
  Eigen::MatrixXd directions_;  ///< eigenvectors of one of them, or of their sum
};

}  // namespace topksoftmax
