// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
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

/// Rows first, …, first + count − 1, as float32 [count×d].
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

/// The biases of some tokens [n]; zeros where the layer has none.
inline Eigen::VectorXd biases_at(const SoftmaxLayer& layer, std::span<const TokenId> tokens) {
  const float* const biases = layer.rows().bias;
  Eigen::VectorXd some = Eigen::VectorXd::Zero(static_cast<Eigen::Index>(tokens.size()));
  for (std::size_t i = 0; i < tokens.size() && biases != nullptr; ++i) {
    some[static_cast<Eigen::Index>(i)] = static_cast<double>(biases[tokens[i]]);
  }
  return some;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
