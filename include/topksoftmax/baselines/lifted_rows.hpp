// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/rows/ippt.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

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

/// Directions in the space of lifted rows, the columns of `directions` [(d + 2)×n], as contexts meet them: a
/// context's last coordinate there is 0, the one before it 1. So the product of a row with h and its bias is
/// the projection of the lifted h. Without biases, where that coordinate of every row is 0, it is 0 in
/// contexts too: a 1 would turn short ones all the same way.
inline StoredRows lifted_directions(const Eigen::MatrixXf& directions, bool has_bias) {
  const Eigen::Index dim = directions.rows() - 2;
  RowMajorMatrix weights(directions.cols(), dim);
  Eigen::VectorXf offsets(directions.cols());
  for (Eigen::Index i = 0; i < directions.cols(); ++i) {
    weights.row(i) = directions.col(i).head(dim);
    offsets[i] = has_bias ? directions(dim, i) : 0.0F;
  }
  return {std::move(weights), std::move(offsets)};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
