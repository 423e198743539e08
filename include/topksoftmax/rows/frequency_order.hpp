// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

template <class Weights>
std::vector<TokenId> by_falling(const Weights& weights, std::size_t vocab) {
  std::vector<TokenId> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return weights[static_cast<std::size_t>(a)] > weights[static_cast<std::size_t>(b)];
  });
  return order;
}

inline std::vector<float> lengths(const SoftmaxLayer& layer) {
  std::vector<float> lengths;
  Eigen::VectorXf row(static_cast<Eigen::Index>(layer.dim()));
  for (std::size_t token = 0; token < layer.vocab(); ++token) {
    layer.copy_row(token, row.data());
    lengths.push_back(static_cast<float>(row.cast<double>().norm()));
  }
  return lengths;
}

/// All tokens, the most frequent first, of equals the lower id: by their counts [V] in the training text;
/// without any (empty) by bias, which grows with the log of the frequency; without biases by the length of
/// their rows. Throws Error, naming the backend, for counts of another number or below 0.
inline std::vector<TokenId> frequency_order(const SoftmaxLayer& layer, std::span<const std::int64_t> counts,
                                            std::string_view backend) {
  const std::size_t vocab = layer.vocab();
  if (counts.empty()) {
    return layer.has_bias() ? by_falling(layer.rows().bias, vocab) : by_falling(lengths(layer), vocab);
  }
  if (counts.size() != vocab) {
    throw Error(std::string(backend) + ": there are " + std::to_string(counts.size()) +
                " counts; V = " + std::to_string(vocab) + " are needed, or none");
  }
  const auto negative = std::find_if(counts.begin(), counts.end(), [](std::int64_t n) { return n < 0; });
  if (negative != counts.end()) {
    throw Error(std::string(backend) + ": counts[" + std::to_string(negative - counts.begin()) + "] is " +
                std::to_string(*negative) + "; a count must be at least 0");
  }
  return by_falling(counts, vocab);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
