// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <random>
#include <span>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::testing {

/// A matrix of normally distributed values, the same for a seed on every platform that has the same std
/// library.
inline RowMajorMatrix random_matrix(Eigen::Index rows, Eigen::Index cols, unsigned seed, float scale = 1.0F) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  RowMajorMatrix m(rows, cols);
  for (Eigen::Index i = 0; i < rows; ++i) {
    for (Eigen::Index j = 0; j < cols; ++j) m(i, j) = normal(engine);
  }
  return m;
}

inline Eigen::VectorXf random_vector(Eigen::Index size, unsigned seed, float scale = 1.0F) {
  return random_matrix(1, size, seed, scale).row(0);
}

/// The values of a matrix, row after row.
inline std::span<const float> values(const RowMajorMatrix& matrix) {
  return {matrix.data(), static_cast<std::size_t>(matrix.size())};
}

/// A layer with random weights and biases.
inline SoftmaxLayer random_layer(Eigen::Index vocab, Eigen::Index dim, unsigned seed) {
  return SoftmaxLayer::own(random_matrix(vocab, dim, seed, 0.3F), random_vector(vocab, seed + 1));
}

/// Contexts that look like a model's: a few topics, and noise around them.
inline RowMajorMatrix clustered_contexts(Eigen::Index count, Eigen::Index dim, Eigen::Index topics,
                                         unsigned seed) {
  const RowMajorMatrix centers = random_matrix(topics, dim, seed, 1.0F);
  RowMajorMatrix contexts = random_matrix(count, dim, seed + 1, 0.25F);
  for (Eigen::Index i = 0; i < count; ++i) contexts.row(i) += centers.row(i % topics);
  return contexts;
}

}  // namespace topksoftmax::testing
