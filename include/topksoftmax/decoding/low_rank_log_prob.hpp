// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/perplexity.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/svd/build.hpp"
#include "topksoftmax/svd/svd_preview.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// log P(token | h) at less cost: exact logits for the candidates of a backend, those of a W of low rank for
/// all other tokens, both in the normaliser ("Learning to Screen", §7.3, after SVD-softmax). Every token has
/// a probability, even where it is not a candidate, but not where it has no row (MappedVocabulary).
class TOPKSOFTMAX_EXPORT LowRankLogProb {
 public:
  /// `rank` (the paper: 20 for d = 200) is between 1 and d; the head must have candidates. Throws Error
  /// otherwise. Cost: that of SvdPreview's constructor. Keeps 4·(rank·(V + d) + V) bytes.
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

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

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
