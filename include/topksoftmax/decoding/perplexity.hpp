// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>

#include "topksoftmax/export.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {

class SvdPreview;

/// exp(−mean log P) of a text.
class Perplexity {
 public:
  /// Counts a token of the text with its log-probability.
  void add(double log_prob) {
    log_prob_ += log_prob;
    ++tokens_;
  }

  std::size_t tokens() const { return tokens_; }

  /// NaN for no token.
  double value() const {
    return tokens_ == 0 ? std::numeric_limits<double>::quiet_NaN()
                        : std::exp(-log_prob_ / static_cast<double>(tokens_));
  }

 private:
  double log_prob_ = 0.0;
  std::size_t tokens_ = 0;
};

/// log P(token | h) of the layer's full softmax. Throws std::invalid_argument as a query does, and for a
/// token that is not of the vocabulary. Cost: reads V·d weights.
TOPKSOFTMAX_EXPORT double exact_log_prob(const SoftmaxLayer& layer, const float* h, std::size_t dim,
                                         TokenId token, Workspace& workspace);

/// log P(token | h) at less cost: exact logits for the candidates of a backend, those of a W of low rank for
/// all other tokens, both in the normaliser ("Learning to Screen", §7.3, after SVD-softmax). Every token has
/// a probability, also one that is no candidate.
class TOPKSOFTMAX_EXPORT LowRankLogProb {
 public:
  /// `rank` (the paper: 20 for d = 200) is between 1 and d; the head must have candidates. Throws Error
  /// otherwise. Cost: V·d² + d³. Keeps 4·rank·(V + d) bytes.
  static LowRankLogProb build(std::shared_ptr<const TopKSoftmax> head, std::size_t rank);

  /// Throws as exact_log_prob does. Cost: the head's screening, candidates·d weights, rank·(V + d) weights, V
  /// exponentials.
  double operator()(const float* h, std::size_t dim, TokenId token, Workspace& workspace) const;

 private:
  LowRankLogProb(std::shared_ptr<const TopKSoftmax> head, std::shared_ptr<const SvdPreview> outside);

  std::shared_ptr<const TopKSoftmax> head_;
  std::shared_ptr<const SvdPreview> outside_;
};

}  // namespace topksoftmax
