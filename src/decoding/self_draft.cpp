// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/self_draft.hpp"

#include <algorithm>
#include <optional>

#include "decoding/kept_logits.hpp"
#include "decoding/speculative_round.hpp"
#include "topksoftmax/candidates.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

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
    if (std::is_sorted(ids_.begin(), ids_.end())) {
      score_candidates(head_.layer(), candidates, h, logits_.data());
    } else {
      std::sort(ids_.begin(), ids_.end());
      kernels::active().scan_gathered(head_.layer().rows(), ids_.data(), ids_.size(), h, logits_.data());
    }
    const Distribution by_place = KeptLogits(logits_, options_.sampling).distribution();
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

}  // namespace

SpeculativeReport self_draft(std::vector<TokenId>& tokens, std::size_t count, const TopKSoftmax& head,
                             const ContextModel& model, RandomStream& random,
                             const SelfDraftOptions& options) {
  check(options.sampling);
  const std::size_t dim = head.layer().dim();
  const std::size_t vocab = head.layer().vocab();
  const std::size_t drafts = options.speculative.drafts;
  std::vector<float> contexts((drafts + 1) * dim);
  Drafter drafter(head, options);
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
    return KeptLogits(logits.subspan(i * vocab, vocab), options.sampling);
  };
  return run_rounds(tokens, count, random, options.speculative, draft_one, score, target,
                    [](const KeptLogits& kept) { return kept.distribution(); });
}

}  // namespace topksoftmax
