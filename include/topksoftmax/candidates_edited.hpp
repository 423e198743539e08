// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>

#include "topksoftmax/answer_scratch.hpp"
#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

// What a query's biases and mask make of candidates.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The candidates, and behind them the tokens that the query biases and the screener did not propose.
inline std::span<const TokenId> with_biased_tokens(std::span<const TokenId> ids,
                                                   const kernels::LogitEdits& edits, std::size_t vocab,
                                                   Workspace& workspace) {
  AnswerScratch& scratch = workspace.scratch<AnswerScratch>();
  scratch.seen.clear(vocab);
  auto* const all = scratch.biased.get<TokenId>(ids.size() + edits.bias_count);
  std::copy(ids.begin(), ids.end(), all);
  for (const TokenId id : ids) scratch.seen.insert(id);
  std::size_t count = ids.size();
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    if (scratch.seen.insert(edits.bias[b].id)) all[count++] = edits.bias[b].id;
  }
  return {all, count};
}

/// Whether an answer can be chosen from these candidates: at least k are proposed, and of
/// with_biased_tokens() as many are allowed. Cost: O(1) without a mask.
inline bool has_answer(const Candidates& candidates, const Query& query, std::size_t vocab,
                       Workspace& workspace) {
  if (candidates.ids.size() < query.k) return false;
  if (query.edits.allowed.empty()) return true;
  const auto ids = with_biased_tokens(candidates.ids, query.edits, vocab, workspace);
  const auto is_allowed = [&query](TokenId id) { return query.edits.allows(id); };
  return static_cast<std::size_t>(std::count_if(ids.begin(), ids.end(), is_allowed)) >= query.k;
}

inline void edit(const kernels::LogitEdits& edits, std::span<const TokenId> ids, float* logits) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!edits.allows(ids[i])) {
      logits[i] = -std::numeric_limits<float>::infinity();
    } else if (const TokenBias* const bias = edits.bias_of(ids[i]); bias != nullptr) {
      logits[i] = kernels::add_bias(logits[i], bias->bias);
    }
  }
}

/// The learned mass outside of with_biased_tokens(), of which there are so many and whose logits have no
/// biases yet: those that are there for the biases alone are not outside any more.
inline double learned_outside(const Candidates& candidates, std::size_t count, const float* logits,
                              Workspace& workspace) {
  const std::size_t proposed = candidates.ids.size();
  if (candidates.biased_apart && count > proposed) {
    auto* const best_first = workspace.scratch<AnswerScratch>().best.get<float>(count);
    std::copy(logits, logits + count, best_first);
    std::nth_element(best_first, best_first + proposed, best_first + count, std::greater<>());
    logits = best_first;
  }
  const double outside =
      std::min(candidates.outside, kernels::log_sum_exp(logits, proposed) + candidates.most_outside);
  if (count == proposed) return outside;
  const double taken = std::exp(kernels::log_sum_exp(logits + proposed, count - proposed) - outside);
  return taken < 1.0 ? outside + std::log1p(-taken) : -std::numeric_limits<double>::infinity();
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
