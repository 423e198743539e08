// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <random>
#include <vector>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::testing {

/// A layer of small whole numbers, and contexts of such: every order of additions gives the same logits, and
/// many are equal. What is right is told by loops over integers that share no code with the library.
class WholeNumbers {
 public:
  WholeNumbers(Eigen::Index vocab, Eigen::Index dim, unsigned seed)
      : W_(vocab, dim), b_(vocab), contexts_(600, dim) {
    std::mt19937 engine(seed);
    const auto some = [&engine](int most) {
      return static_cast<float>(static_cast<int>(engine() % static_cast<unsigned>(2 * most + 1)) - most);
    };
    const auto fill = [](RowMajorMatrix& matrix, const auto& next) {
      std::generate_n(matrix.data(), matrix.size(), next);
    };
    fill(W_, [&] { return some(2); });
    std::generate_n(b_.data(), b_.size(), [&] { return some(3); });
    // A few topics, and noise around them.
    RowMajorMatrix topics(12, dim);
    fill(topics, [&] { return some(2); });
    fill(contexts_, [&] { return engine() % 4 == 0 ? some(1) : 0.0F; });
    for (Eigen::Index i = 0; i < contexts_.rows(); ++i) contexts_.row(i) += topics.row(i % 12);
  }

  SoftmaxLayer layer() const { return SoftmaxLayer::own(W_, b_); }
  const RowMajorMatrix& contexts() const { return contexts_; }

  /// What a query allows, and what it adds to a token's logit.
  std::function<bool(int)> allows = [](int) { return true; };
  std::function<int(int)> bias = [](int) { return 0; };

  struct Token {
    int id;
    int logit;
  };

  /// Every allowed token, best first: larger logits, then lower ids.
  std::vector<Token> ranking(Eigen::Index context) const {
    std::vector<Token> all;
    for (Eigen::Index v = 0; v < W_.rows(); ++v) {
      const int id = static_cast<int>(v);
      if (!allows(id)) continue;
      int logit = static_cast<int>(b_[v]) + bias(id);
      for (Eigen::Index j = 0; j < W_.cols(); ++j) {
        logit += static_cast<int>(W_(v, j)) * static_cast<int>(contexts_(context, j));
      }
      all.push_back({id, logit});
    }
    std::sort(all.begin(), all.end(),
              [](Token a, Token b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
    return all;
  }

  /// log Σ exp(logit) of a ranking.
  static double log_z(const std::vector<Token>& ranking) {
    double sum = 0.0;
    for (const Token& token : ranking) sum += std::exp(static_cast<double>(token.logit - ranking[0].logit));
    return ranking[0].logit + std::log(sum);
  }

 private:
  RowMajorMatrix W_;
  Eigen::VectorXf b_;
  RowMajorMatrix contexts_;
};

}  // namespace topksoftmax::testing
