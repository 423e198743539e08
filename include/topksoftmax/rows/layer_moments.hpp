// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/products.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Sums over the rows w [d] of a layer and their biases b, weights being in a unit of their own.
struct LayerMoments {
  double unit = 1.0;          ///< a power of two: the largest weight is 1 to 2 of it
  Eigen::MatrixXd gram;       ///< Σ wwᵀ [d×d]: see kRowsOfFloatSums
  Eigen::VectorXd sum;        ///< Σ w [d]
  Eigen::VectorXd bias_sum;   ///< Σ b·w [d]
  double biases = 0.0;        ///< Σ b
  double bias_squares = 0.0;  ///< Σ b²

  std::size_t dim() const { return static_cast<std::size_t>(gram.rows()); }
};

/// Products of so many rows at the most are summed up in float32 before they go to a sum in float64.
inline constexpr std::size_t kRowsOfFloatSums = 256;

/// The largest weight's size; 0 where there is none but 0.
inline double largest_weight(const SoftmaxLayer& layer, const Executor& executor) {
  const std::size_t vocab = layer.vocab();
  std::vector<float> peaks((vocab + kLayerRowsAtOnce - 1) / kLayerRowsAtOnce);
  for_each_part(executor, vocab, kLayerRowsAtOnce, [&](std::size_t first, std::size_t count) {
    peaks[first / kLayerRowsAtOnce] = rows_from(layer, first, count).cwiseAbs().maxCoeff();
  });
  return static_cast<double>(*std::max_element(peaks.begin(), peaks.end()));
}

/// The same bits for every executor. Cost: V·d²/2 multiply-adds.
inline LayerMoments layer_moments(const SoftmaxLayer& layer, const Executor& executor) {
  const auto dim = static_cast<Eigen::Index>(layer.dim());
  LayerMoments moments;
  const double largest = largest_weight(layer, executor);
  if (largest > 0.0) moments.unit = std::ldexp(1.0, std::ilogb(largest));
  moments.gram = Eigen::MatrixXd::Zero(dim, dim);
  moments.sum = moments.bias_sum = Eigen::VectorXd::Zero(dim);
  const float* const biases = layer.rows().bias;
  for (std::size_t first = 0; first < layer.vocab(); first += kRowsOfFloatSums) {
    const std::size_t count = std::min(kRowsOfFloatSums, layer.vocab() - first);
    const RowMajorMatrix rows = rows_from(layer, first, count) / static_cast<float>(moments.unit);
    moments.gram += gram(rows, executor).cast<double>();
    const Eigen::MatrixXd exact = rows.cast<double>();
    moments.sum += exact.colwise().sum().transpose();
    if (biases == nullptr) continue;
    const Eigen::VectorXd b =
        Eigen::Map<const Eigen::VectorXf>(biases + first, static_cast<Eigen::Index>(count)).cast<double>();
    moments.bias_sum += exact.transpose() * b;
    moments.biases += b.sum();
    moments.bias_squares += b.squaredNorm();
  }
  return moments;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
