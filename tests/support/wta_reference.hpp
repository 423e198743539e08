// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/wta/wta_hash.hpp"

namespace topksoftmax::testing {

/// Winner-take-all band codes and hits as the paper's equations 4–9 say them, by plain loops.
class WtaReference {
 public:
  WtaReference(std::size_t dim, const WtaHashOptions& options)
      : hash_(dim, options), units_(options.units_per_band) {}

  /// B_1 … B_W of x, each as the list of its u hashes.
  std::vector<std::vector<std::size_t>> bands(const Eigen::VectorXf& x) const {
    std::vector<std::vector<std::size_t>> all(hash_.bands());
    for (std::size_t p = 0; p < hash_.bands() * units_; ++p) {
      const std::vector<std::int32_t> permutation = hash_.permutation(p);
      std::size_t winner = 0;
      for (std::size_t k = 0; k < permutation.size(); ++k) {
        if (x[permutation[k]] > x[permutation[winner]]) winner = k;
      }
      all[p / units_].push_back(winner);
    }
    return all;
  }

  /// L[token] for a context h.
  std::vector<std::size_t> hits(const SoftmaxLayer& layer, const Eigen::VectorXf& h) const {
    const auto of_context = bands(h);
    const RowMajorMatrix W = layer.weights();
    std::vector<std::size_t> hits(layer.vocab());
    for (std::size_t token = 0; token < hits.size(); ++token) {
      const auto of_token = bands(W.row(static_cast<Eigen::Index>(token)));
      for (std::size_t w = 0; w < of_token.size(); ++w) hits[token] += of_token[w] == of_context[w];
    }
    return hits;
  }

 private:
  WtaHash hash_;
  std::size_t units_;
};

}  // namespace topksoftmax::testing
