// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A matrix [count×dim] with a bias for each row, or none, in memory that it may share.
class StoredRows {
 public:
  StoredRows() = default;

  /// A copy of m.
  explicit StoredRows(const RowMajorMatrix& m)
      : count_(static_cast<std::size_t>(m.rows())),
        dim_(static_cast<std::size_t>(m.cols())),
        weights_(StoredArray<float>::copy({m.data(), count_ * dim_})) {}
  StoredRows(const RowMajorMatrix& m, Eigen::VectorXf biases) : StoredRows(m) {
    biases_ = StoredArray<float>::own(std::move(biases));
  }

  /// `weights` has a multiple of `dim` ≥ 1 values, `biases` one for each row, or none.
  StoredRows(StoredArray<float> weights, std::size_t dim, StoredArray<float> biases = {})
      : count_(weights.size() / dim), dim_(dim), weights_(std::move(weights)), biases_(std::move(biases)) {}

  /// As the kernels take it.
  kernels::Rows rows() const {
    kernels::Rows rows;
    rows.data = weights_.data();
    rows.bias = biases_.data();
    rows.count = count_;
    rows.dim = rows.stride = dim_;
    return rows;
  }

  std::size_t count() const { return count_; }
  std::size_t dim() const { return dim_; }
  const StoredArray<float>& weights() const { return weights_; }
  const StoredArray<float>& biases() const { return biases_; }

 private:
  std::size_t count_ = 0;
  std::size_t dim_ = 0;
  StoredArray<float> weights_;
  StoredArray<float> biases_;
};

/// The rows of all these, one behind the other: at least one, as wide as each other and with biases.
inline StoredRows stacked(std::span<const StoredRows> parts) {
  std::vector<float> weights;
  std::vector<float> biases;
  for (const StoredRows& part : parts) {
    weights.insert(weights.end(), part.weights().begin(), part.weights().end());
    biases.insert(biases.end(), part.biases().begin(), part.biases().end());
  }
  return {StoredArray<float>::copy(weights), parts.front().dim(), StoredArray<float>::own(std::move(biases))};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
