// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/svd/build.hpp"
#include "topksoftmax/svd/svd_preview.hpp"
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

/// log P(token | h) at less cost: exact logits for the candidates of a backend, those of a W of low rank for
/// all other tokens, both in the normaliser ("Learning to Screen", §7.3, after SVD-softmax). Every token has
/// a probability, even where it is not a candidate, but not where it has no row (MappedVocabulary).
class TOPKSOFTMAX_EXPORT LowRankLogProb {
 public:
  /// `rank` (the paper: 20 for d = 200) is between 1 and d; the head must have candidates. Throws Error
  /// otherwise. Cost: that of SvdPreview's constructor. Keeps 4·rank·(V + d) bytes.
  static LowRankLogProb build(std::shared_ptr<const TopKSoftmax> head, std::size_t rank,
                              const Executor& executor = default_executor());

  /// Throws as exact_log_prob does. Cost: the head's screening, candidates·d weights, rank·(V + d) weights, V
  /// exponentials.
  double operator()(const float* h, std::size_t dim, TokenId token, Workspace& workspace) const;

 private:
  LowRankLogProb(std::shared_ptr<const TopKSoftmax> head, std::shared_ptr<const SvdPreview> outside);

  std::shared_ptr<const TopKSoftmax> head_;
  std::shared_ptr<const SvdPreview> outside_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What LowRankLogProb works in.
struct LowRankScratch {
  ScratchBuffer logits;       ///< of all rows, then of the candidates
  ScratchBuffer of_tokens;    ///< of all tokens, where these are not the rows
  ScratchBuffer coordinates;  ///< of the context among the leading directions
};

/// What log_prob_by asks for.
struct LogProbScratch {
  TopK top;
};

inline void check_token(TokenId token, std::size_t vocab) {
  if (token >= 0 && static_cast<std::size_t>(token) < vocab) return;
  throw std::invalid_argument("log_prob: token " + std::to_string(token) +
                              " is not of the vocabulary; V = " + std::to_string(vocab));
}

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

inline LowRankLogProb::LowRankLogProb(std::shared_ptr<const TopKSoftmax> head,
                                      std::shared_ptr<const SvdPreview> outside)
    : head_(std::move(head)), outside_(std::move(outside)) {}

inline LowRankLogProb LowRankLogProb::build(std::shared_ptr<const TopKSoftmax> head, std::size_t rank,
                                            const Executor& executor) {
  if (head == nullptr) throw Error("perplexity: there is no head to take candidates from");
  const SoftmaxLayer& layer = head->layer();
  if (rank < 1 || rank > layer.dim()) {
    throw Error("perplexity: the rank is " + std::to_string(rank) +
                "; it must be between 1 and d = " + std::to_string(layer.dim()));
  }
  const std::vector<float> nowhere(layer.dim(), 0.0F);
  Workspace workspace;
  if (!head->candidates(nowhere.data(), nowhere.size(), {}, workspace)) {
    throw Error("perplexity: the backend " + std::string(head->name()) +
                " has no candidates; take exact_log_prob, or a backend that screens");
  }
  auto outside = std::make_shared<const SvdPreview>(layer, rank, executor);
  return LowRankLogProb(std::move(head), std::move(outside));
}

inline double LowRankLogProb::operator()(const float* h, std::size_t dim, TokenId token,
                                         Workspace& workspace) const {
  const std::size_t rows = head_->layer().vocab();
  const std::size_t vocab = head_->vocab();
  detail::check_token(token, vocab);
  const std::optional<Candidates> found = head_->candidates(h, dim, {}, workspace);
  if (found->everything) {
    return detail::log_prob_of(head_->logits_batch(h, 1, dim, dim, {}, workspace).data(), vocab, token);
  }

  const std::span<const TokenId> ids = found->ids;
  auto& scratch = workspace.scratch<detail::LowRankScratch>();
  auto* logits = scratch.logits.get<float>(rows + ids.size());
  outside_->logits(h, workspace, scratch.coordinates.get<float>(outside_->width()), logits);
  float* const inside = logits + rows;
  if (found->packed != nullptr) {
    score_candidates(head_->layer(), *found, h, workspace, inside);
  } else {
    head_->logits_of({h, dim}, ids, {}, workspace, {inside, ids.size()});
  }
  if (const RowMap* const row_map = head_->row_map().get()) {
    auto* const of_tokens = scratch.of_tokens.get<float>(vocab);
    row_map->scatter(logits, of_tokens);
    logits = of_tokens;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) logits[ids[i]] = inside[i];
  return detail::log_prob_of(logits, vocab, token);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
