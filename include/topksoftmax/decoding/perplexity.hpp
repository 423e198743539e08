// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include "topksoftmax/check_query.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// exp(−mean log P) of a text.
class Perplexity {
 public:
  /// Counts a token of the text with its log-probability.
  void add(double log_prob) {
    log_prob_ += log_prob;
    ++tokens_;
  }

  /// Tokens counted so far.
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

/// log P(token | h) of the layer's full softmax, tokens being its rows. Throws std::invalid_argument as a
/// query does, and for a token that is not of the vocabulary. Cost: reads V·d weights.
double exact_log_prob(const SoftmaxLayer& layer, const float* h, std::size_t dim, TokenId token,
                      Workspace& workspace);

/// log P(token | h) by the log Z that a head answers with: the token's exact logit − log Z. It is as good as
/// that log Z: take heads whose answers count every token, even if by an estimate
/// (Normalizer::learned, low_rank, interval, exact). −∞ for a token without a row (MappedVocabulary). Throws
/// as exact_log_prob does. Cost: a query with k = 1, and d weights.
double log_prob_by(const TopKSoftmax& head, const float* h, std::size_t dim, TokenId token,
                   Workspace& workspace);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What log_prob_by asks for.
struct LogProbScratch {
  TopK top;
};

inline void check_token(TokenId token, std::size_t vocab) {
  check_tokens("log_prob", {&token, 1}, 1, vocab);
}

/// log P of one of these logits' tokens.
inline double log_prob_of(const float* logits, std::size_t vocab, TokenId token) {
  return static_cast<double>(logits[token]) - kernels::log_sum_exp(logits, vocab);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline double exact_log_prob(const SoftmaxLayer& layer, const float* h, std::size_t dim, TokenId token,
                             Workspace& workspace) {
  detail::check_token(token, layer.vocab());
  const Exact exact(layer);
  return detail::log_prob_of(exact.logits_batch(h, 1, dim, dim, {}, workspace).data(), layer.vocab(), token);
}

inline double log_prob_by(const TopKSoftmax& head, const float* h, std::size_t dim, TokenId token,
                          Workspace& workspace) {
  detail::check_token(token, head.vocab());
  TopK& top = workspace.scratch<detail::LogProbScratch>().top;
  head.query(h, dim, {.k = 1}, workspace, top);
  float logit = 0.0F;
  head.logits_of({h, dim}, {&token, 1}, {}, workspace, {&logit, 1});
  return static_cast<double>(logit) - top.log_z;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
