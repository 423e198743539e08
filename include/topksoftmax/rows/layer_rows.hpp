// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/products.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The rows of some tokens as float32 [n×d].
inline RowMajorMatrix rows_at(const SoftmaxLayer& layer, std::span<const TokenId> tokens) {
  RowMajorMatrix rows(static_cast<Eigen::Index>(tokens.size()), static_cast<Eigen::Index>(layer.dim()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    layer.copy_row(static_cast<std::size_t>(tokens[i]), rows.data() + i * layer.dim());
  }
  return rows;
}

/// Rows of a layer that are made float32, or float64, at a time.
inline constexpr std::size_t kLayerRowsAtOnce = 4096;

/// Those that follow one another, as float32 [count×d].
inline RowMajorMatrix rows_from(const SoftmaxLayer& layer, std::size_t first, std::size_t count) {
  RowMajorMatrix rows(static_cast<Eigen::Index>(count), static_cast<Eigen::Index>(layer.dim()));
  for (std::size_t i = 0; i < count; ++i) layer.copy_row(first + i, rows.data() + i * layer.dim());
  return rows;
}

/// At most `count` tokens, evenly spaced.
inline std::vector<TokenId> evenly_spaced_tokens(const SoftmaxLayer& layer, std::size_t count) {
  std::vector<TokenId> tokens(std::min(layer.vocab(), count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>(i * layer.vocab() / tokens.size());
  }
  return tokens;
}

/// Their biases.
inline Eigen::VectorXd biases_at(const SoftmaxLayer& layer, std::span<const TokenId> tokens) {
  const float* const biases = layer.rows().bias;
  Eigen::VectorXd some = Eigen::VectorXd::Zero(static_cast<Eigen::Index>(tokens.size()));
  for (std::size_t i = 0; i < tokens.size() && biases != nullptr; ++i) {
    some[static_cast<Eigen::Index>(i)] = static_cast<double>(biases[tokens[i]]);
  }
  return some;
}

/// WᵀW [d×d] but for a factor, the square of the largest weight, some rows at a time. Cost: V·d²/2
/// multiply-adds.
inline Eigen::MatrixXd layer_gram(const SoftmaxLayer& layer, const Executor& executor) {
  const std::size_t vocab = layer.vocab();
  std::vector<float> peaks((vocab + kLayerRowsAtOnce - 1) / kLayerRowsAtOnce);
  for_each_part(executor, vocab, kLayerRowsAtOnce, [&](std::size_t first, std::size_t count) {
    peaks[first / kLayerRowsAtOnce] = rows_from(layer, first, count).cwiseAbs().maxCoeff();
  });
  const float peak = *std::max_element(peaks.begin(), peaks.end());
  const auto dim = static_cast<Eigen::Index>(layer.dim());
  Eigen::MatrixXd sum = Eigen::MatrixXd::Zero(dim, dim);
  for (std::size_t first = 0; first < vocab; first += kLayerRowsAtOnce) {
    RowMajorMatrix rows = rows_from(layer, first, std::min(kLayerRowsAtOnce, vocab - first));
    if (peak > 0.0F) rows /= peak;
    sum += gram(rows, executor).cast<double>();
  }
  return sum;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
