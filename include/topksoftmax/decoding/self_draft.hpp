// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/distribution_of.hpp"
#include "topksoftmax/decoding/kept_logits.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/speculative.hpp"
#include "topksoftmax/decoding/speculative_options.hpp"
#include "topksoftmax/decoding/speculative_report.hpp"
#include "topksoftmax/decoding/speculative_round.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Writes the context h [d] of the token after `tokens`. It is asked for growing texts; after a rejected
/// draft the text has a new token in the draft's place, and a model that keeps states goes back to the one
/// before it.
using ContextModel = std::function<void(std::span<const TokenId> tokens, float* h)>;

/// Options of speculation with a head as its own draft.
struct SelfDraftOptions {
  SamplingOptions sampling = {};  ///< of the text, and of the drafts
  /// How many tokens are drafted, and what ends the text.
  SpeculativeOptions speculative = {};
  /// Drafts are drawn from all candidates of the approximate head, or, if it has no list of them or the query
  /// has a mask or biases, from so many of its best tokens.
  std::size_t draft_tokens = 64;
  QueryOptions query = {};  ///< mask, biases and effort, for drafts and verification alike
};

/// Speculative sampling with one model and two heads: an approximate head drafts K tokens, then the full
/// softmax of its layer verifies their K + 1 contexts in one batched pass. W is read once for them all
/// instead of once for each token, and the text is distributed exactly as the layer's full softmax (with the
/// sampling options) says: what the approximate head misses costs time alone.
///
/// Worth it where reading W is what a token costs and no head can prove its answers: Sampler over one that
/// does is faster. Throws std::invalid_argument as query, check() and speculative_sample do, and for XTC;
/// what the model throws passes through.
///
/// Cost of a round: K + 1 contexts, K queries of the head, V·d weights once, (K + 1)·V·d multiply-adds, and V
/// exponentials for each draft that is looked at.
SpeculativeReport self_draft(std::vector<TokenId>& tokens, std::size_t count, const TopKSoftmax& head,
                             const ContextModel& model, RandomStream& random,
                             const SelfDraftOptions& options = {});

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What an approximate head would draw from.
class Drafter {
 public:
  Drafter(const TopKSoftmax& head, const SelfDraftOptions& options) : head_(head), options_(options) {}

  Distribution draft(const float* h, std::size_t dim) {
    if (options_.query.allowed.empty() && options_.query.logit_bias.empty()) {
      QueryOptions asked = options_.query;
      asked.k = 1;
      const std::optional<Candidates> found = head_.candidates(h, dim, asked, workspace_);
      if (found && !found->everything && !found->ids.empty()) return of_candidates(*found, h);
    }
    QueryOptions asked = options_.query;
    asked.k = options_.draft_tokens;
    asked.probabilities = false;
    head_.query(h, dim, asked, workspace_, answer_);
    return distribution_of(answer_, options_.sampling);
  }

 private:
  /// All of them: whatever the head left out is a draft that cannot be made.
  Distribution of_candidates(const Candidates& candidates, const float* h) {
    ids_.assign(candidates.ids.begin(), candidates.ids.end());
    logits_.resize(ids_.size());
    if (candidates.packed != nullptr && std::is_sorted(ids_.begin(), ids_.end())) {
      score_candidates(head_.layer(), candidates, h, workspace_, logits_.data());
    } else {
      std::sort(ids_.begin(), ids_.end());
      head_.logits_of({h, head_.layer().dim()}, ids_, {}, workspace_, logits_);
    }
    const Distribution by_place = KeptLogits(logits_, options_.sampling, false).distribution();
    std::vector<TokenId> ids(by_place.size());
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = ids_[static_cast<std::size_t>(by_place.id(i))];
    return Distribution::of_some(std::move(ids),
                                 {by_place.probabilities().begin(), by_place.probabilities().end()});
  }

  const TopKSoftmax& head_;
  const SelfDraftOptions& options_;
  Workspace workspace_;
  TopK answer_;
  std::vector<TokenId> ids_;
  std::vector<float> logits_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline SpeculativeReport self_draft(std::vector<TokenId>& tokens, std::size_t count, const TopKSoftmax& head,
                                    const ContextModel& model, RandomStream& random,
                                    const SelfDraftOptions& options) {
  check(options.sampling);
  if (options.sampling.xtc_probability > 0.0) {
    throw std::invalid_argument("self_draft: xtc_probability is " +
                                detail::value_text(options.sampling.xtc_probability) +
                                "; it must be 0: whether XTC acts is drawn anew for every token");
  }
  const std::size_t dim = head.layer().dim();
  const std::size_t vocab = head.vocab();
  const std::size_t drafts = options.speculative.drafts;
  std::vector<float> contexts((drafts + 1) * dim);
  detail::Drafter drafter(head, options);
  Workspace workspace;
  std::span<const float> logits;
  std::size_t drafted = 0;

  const auto draft_one = [&](std::span<const TokenId> text) {
    float* const h = contexts.data() + drafted * dim;
    model(text, h);
    drafted = (drafted + 1) % drafts;
    return drafter.draft(h, dim);
  };
  const auto score = [&](std::span<const TokenId> text) {
    model(text, contexts.data() + drafts * dim);
    logits = head.logits_batch(contexts.data(), drafts + 1, dim, dim, options.query, workspace);
  };
  const auto target = [&](std::size_t i) {
    return detail::KeptLogits(logits.subspan(i * vocab, vocab), options.sampling, false);
  };
  return detail::run_rounds(tokens, count, random, options.speculative, draft_one, score, target,
                            [](const detail::KeptLogits& kept) { return kept.distribution(); });
}

}  // namespace TOPKSOFTMAX_NAMESPACE
