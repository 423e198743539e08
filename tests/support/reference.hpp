// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::testing {

/// The full softmax of one context in double precision, by plain loops that share no code with the library.
struct Reference {
  std::vector<double> logits;      ///< [V]
  std::vector<double> magnitudes;  ///< Σ|w_j·h_j| + |b|, what a rounding error is relative to
  double log_z = 0.0;
  double scale = 1.0;  ///< of the layer's transform, whose slope is nowhere larger

  Reference(const SoftmaxLayer& layer, const Eigen::VectorXf& h) {
    const RowMajorMatrix W = layer.weights();
    const Eigen::VectorXf b = layer.biases();
    for (Eigen::Index token = 0; token < W.rows(); ++token) {
      double logit = b[token];
      double magnitude = std::abs(logit);
      for (Eigen::Index j = 0; j < W.cols(); ++j) {
        const double product = static_cast<double>(W(token, j)) * static_cast<double>(h[j]);
        logit += product;
        magnitude += std::abs(product);
      }
      logits.push_back(transformed(layer.transform(), logit));
      magnitudes.push_back(magnitude);
    }
    scale = static_cast<double>(layer.transform().scale);
    sum_up();
  }

  /// The same where only some tokens are allowed, one at least, and some have biases.
  template <class Allows>
  Reference edited(const Allows& allows, const std::vector<TokenBias>& biases) const {
    Reference other = *this;
    for (const TokenBias& bias : biases) {
      other.logits[static_cast<std::size_t>(bias.id)] += static_cast<double>(bias.bias);
      other.magnitudes[static_cast<std::size_t>(bias.id)] += static_cast<double>(std::abs(bias.bias));
    }
    for (std::size_t token = 0; token < logits.size(); ++token) {
      if (!allows(static_cast<TokenId>(token))) other.logits[token] = -HUGE_VAL;
    }
    other.sum_up();
    return other;
  }

  /// What the layer makes of a product, as a model's own code writes it.
  static double transformed(const LogitTransform& transform, double product) {
    const double scaled = product * static_cast<double>(transform.scale);
    if (transform.soft_cap == 0.0F) return scaled;
    const auto cap = static_cast<double>(transform.soft_cap);
    return std::tanh(scaled / cap) * cap;
  }

  /// How far a float32 logit of this token may be from the real one: d rounded products and additions, and
  /// what a transform adds.
  double tolerance(std::size_t token, std::size_t dim) const {
    return scale * static_cast<double>(dim + 2) * std::ldexp(1.0, -24) * magnitudes[token] +
           std::ldexp(std::abs(logits[token]), -20) + 1e-37;
  }

 private:
  void sum_up() {
    const double max = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const double logit : logits) sum += std::exp(logit - max);
    log_z = max + std::log(sum);
  }
};

}  // namespace topksoftmax::testing
