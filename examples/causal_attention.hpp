// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <string>

#include "linear.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// Attention of each token to itself and those before it, in heads of 64: PREFIX.qkv.weight [3d×d] gives
/// queries, keys and values, PREFIX.out.weight [d×d] puts the heads together.
class CausalAttention {
 public:
  static constexpr std::size_t kHead = 64;

  /// Keys and values of the tokens that were read: those of head n in rows n·positions and on.
  struct Cache {
    RowMajorMatrix keys;    ///< [heads·positions × 64]
    RowMajorMatrix values;  ///< likewise

    Cache(std::size_t heads, std::size_t positions)
        : keys(static_cast<Eigen::Index>(heads * positions), static_cast<Eigen::Index>(kHead)),
          values(keys.rows(), keys.cols()) {}
  };

  CausalAttention(const SafetensorsFile& file, const std::string& prefix, std::size_t dim)
      : heads_(dim / kHead),
        qkv_(file, prefix + ".qkv.weight", {}, {3 * dim, dim}),
        out_(file, prefix + ".out.weight", {}, {dim, dim}) {}

  /// Bytes of weights.
  std::size_t bytes() const { return qkv_.bytes() + out_.bytes(); }

  /// What tokens X [n×d] take from all before them and each other, where `read` of them are in the cache
  /// already: [n×d].
  RowMajorMatrix operator()(const RowMajorMatrix& X, std::size_t read, Cache& cache,
                            std::size_t threads) const {
    RowMajorMatrix qkv;
    qkv_.apply(X, qkv, threads);
    const Eigen::Index d = X.cols();
    RowMajorMatrix taken(X.rows(), d);
    Eigen::VectorXf weights(static_cast<Eigen::Index>(read) + X.rows());
    for (Eigen::Index i = 0; i < X.rows(); ++i) {
      const std::size_t place = read + static_cast<std::size_t>(i);
      for (std::size_t head = 0; head < heads_; ++head) {
        const auto column = static_cast<Eigen::Index>(head * kHead);
        const Eigen::Index first = static_cast<Eigen::Index>(head) * positions(cache);
        const Eigen::Index row = first + static_cast<Eigen::Index>(place);
        constexpr auto size = static_cast<Eigen::Index>(kHead);
        cache.keys.row(row) = qkv.row(i).segment(d + column, size);
        cache.values.row(row) = qkv.row(i).segment(2 * d + column, size);
        attend(cache, first, place + 1, qkv.row(i).data() + column, weights.data(),
               taken.row(i).data() + column);
      }
    }
    RowMajorMatrix Y;
    out_.apply(taken, Y, threads);
    return Y;
  }

 private:
  Eigen::Index positions(const Cache& cache) const {
    return cache.keys.rows() / static_cast<Eigen::Index>(heads_);
  }

  /// The values of `count` places of a head, weighted by softmax(q·k/√64).
  static void attend(const Cache& cache, Eigen::Index first, std::size_t count, const float* query,
                     float* weights, float* taken) {
    const auto rows = [&](const RowMajorMatrix& of) {
      return kernels::Rows{.data = of.row(first).data(), .count = count, .dim = kHead, .stride = kHead};
    };
    kernels::Rows keys = rows(cache.keys);
    keys.transform.scale = 1.0F / std::sqrt(static_cast<float>(kHead));
    kernels::scan(keys, 0, count, query, weights);
    kernels::exp(weights, count, kernels::max(weights, count), weights);
    kernels::combine_rows(rows(cache.values), weights, taken);
    Eigen::Map<Eigen::VectorXf>(taken, static_cast<Eigen::Index>(kHead)) /=
        Eigen::Map<const Eigen::VectorXf>(weights, static_cast<Eigen::Index>(count)).sum();
  }

  std::size_t heads_;
  Linear qkv_;
  Linear out_;
};

}  // namespace topksoftmax::examples
