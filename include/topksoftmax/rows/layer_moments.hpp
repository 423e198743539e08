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

/// Moments of the rows w [d] of a layer and their biases b, weights being in a unit of their own.
struct LayerMoments {
  std::size_t rows = 0;
  double unit = 1.0;                ///< a power of two: the largest weight is 1 to 2 of it
  Eigen::VectorXd mean;             ///< E[w] [d]
  Eigen::MatrixXd covariance;       ///< Cov(w) [d×d]: see kRowsOfFloatSums
  Eigen::VectorXd bias_covariance;  ///< Cov(w, b) [d]
  double bias_mean = 0.0;           ///< E[b]
  double bias_square = 0.0;         ///< E[b²]

  /// Σ wwᵀ [d×d].
  Eigen::MatrixXd gram() const { return static_cast<double>(rows) * (covariance + mean * mean.transpose()); }
};

/// Products of so many rows, their mean taken off and rounded to floats, are summed up in float32 before they
/// go to a sum in float64.
inline constexpr std::size_t kRowsOfFloatSums = 256;

/// The same bits for every executor. Cost: V·d²/2 multiply-adds.
inline LayerMoments layer_moments(const SoftmaxLayer& layer, const Executor& executor) {
  const std::size_t vocab = layer.vocab();
  const auto dim = static_cast<Eigen::Index>(layer.dim());
  struct Part {
    float largest;
    Eigen::VectorXd sum;
  };
  std::vector<Part> parts((vocab + kLayerRowsAtOnce - 1) / kLayerRowsAtOnce);
  for_each_part(executor, vocab, kLayerRowsAtOnce, [&](std::size_t first, std::size_t count) {
    const RowMajorMatrix rows = rows_from(layer, first, count);
    parts[first / kLayerRowsAtOnce] = {rows.cwiseAbs().maxCoeff(), rows.cast<double>().colwise().sum()};
  });
  LayerMoments moments = {.rows = vocab,
                          .mean = Eigen::VectorXd::Zero(dim),
                          .covariance = Eigen::MatrixXd::Zero(dim, dim),
                          .bias_covariance = Eigen::VectorXd::Zero(dim)};
  float largest = 0.0F;
  for (const Part& part : parts) {
    largest = std::max(largest, part.largest);
    moments.mean += part.sum;
  }
  if (largest > 0.0F) moments.unit = std::ldexp(1.0, std::ilogb(largest));
  const auto unit = static_cast<float>(moments.unit);
  moments.mean /= static_cast<double>(vocab) * moments.unit;
  const Eigen::RowVectorXf centre = moments.mean.cast<float>();
  const float* const biases = layer.rows().bias;
  for (std::size_t first = 0; first < vocab; first += kRowsOfFloatSums) {
    const std::size_t count = std::min(kRowsOfFloatSums, vocab - first);
    const RowMajorMatrix rows = rows_from(layer, first, count) / unit;
    moments.covariance += gram(RowMajorMatrix(rows.rowwise() - centre), executor).cast<double>();
    if (biases == nullptr) continue;
    const Eigen::VectorXd b =
        Eigen::Map<const Eigen::VectorXf>(biases + first, static_cast<Eigen::Index>(count)).cast<double>();
    moments.bias_covariance += rows.cast<double>().transpose() * b;
    moments.bias_mean += b.sum();
    moments.bias_square += b.squaredNorm();
  }
  const double share = 1.0 / static_cast<double>(vocab);
  const Eigen::VectorXd off = moments.mean - centre.transpose().cast<double>();
  moments.covariance = moments.covariance * share - off * off.transpose();
  moments.bias_mean *= share;
  moments.bias_square *= share;
  moments.bias_covariance = moments.bias_covariance * share - moments.mean * moments.bias_mean;
  return moments;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
