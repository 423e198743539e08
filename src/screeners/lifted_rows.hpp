// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>

#include "rows_of.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/screeners/ippt.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// The rows of a layer by Ippt, all of one length [V×(d + 2)].
inline Eigen::MatrixXf lifted_rows(const SoftmaxLayer& layer) {
  const Ippt ippt(layer);
  Eigen::MatrixXf lifted(static_cast<Eigen::Index>(layer.vocab()), static_cast<Eigen::Index>(ippt.dim()));
  Eigen::VectorXd row(lifted.cols());
  for (Eigen::Index token = 0; token < lifted.rows(); ++token) {
    ippt.transform_row(static_cast<std::size_t>(token), row.data());
    lifted.row(token) = row.cast<float>();
  }
  return lifted;
}

/// Directions in the space of lifted rows, as contexts meet them: a context's last coordinate there is 0, the
/// one before it 1.
class LiftedDirections {
 public:
  LiftedDirections() = default;

  /// Of the columns of `directions` [(d + 2)×n].
  explicit LiftedDirections(const Eigen::MatrixXf& directions)
      : weights_(directions.cols(), directions.rows() - 2), offsets_(directions.cols()) {
    for (Eigen::Index i = 0; i < directions.cols(); ++i) {
      weights_.row(i) = directions.col(i).head(weights_.cols());
      offsets_[i] = directions(weights_.cols(), i);
    }
  }

  /// For the kernels: the product of a row with h and its bias is the projection of the lifted h.
  kernels::Rows rows() const {
    kernels::Rows rows = rows_of(weights_);
    rows.bias = offsets_.data();
    return rows;
  }

 private:
  RowMajorMatrix weights_;   ///< [n×d]
  Eigen::VectorXf offsets_;  ///< [n]
};

}  // namespace topksoftmax
