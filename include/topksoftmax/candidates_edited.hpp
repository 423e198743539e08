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
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

// What a query's biases and mask make of candidates.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Whether the tokens that the query forbids are to be taken off what was learned of all.
inline bool takes_off_forbidden(const Query& query, const Candidates& candidates) {
  return query.forbids_few && query.probabilities && candidates.normalizer == Normalizer::learned;
}

/// Whether a query edits tokens that are to be scored, proposed or not.
inline bool edits_tokens(const Query& query, const Candidates& candidates) {
  return query.edits.bias_count != 0 || takes_off_forbidden(query, candidates);
}

/// The candidates, none where everything is one, and behind them the tokens that the screener did not propose
/// and the query biases, or forbids where these are to be taken off. They themselves where it does neither.
inline std::span<const TokenId> with_edited_tokens(const Query& query, const Candidates& candidates,
                                                   std::size_t vocab, Workspace& workspace) {
  const std::span<const TokenId> ids = candidates.everything ? std::span<const TokenId>() : candidates.ids;
  if (!edits_tokens(query, candidates)) return ids;
  const kernels::LogitEdits& edits = query.edits;
  const bool with_forbidden = takes_off_forbidden(query, candidates);
  AnswerScratch& scratch = workspace.scratch<AnswerScratch>();
  scratch.seen.clear(vocab);
  const std::size_t forbidden = with_forbidden ? vocab - edits.allowed.count(vocab) : 0;
  auto* const all = scratch.edited.get<TokenId>(ids.size() + edits.bias_count + forbidden);
  std::copy(ids.begin(), ids.end(), all);
  for (const TokenId id : ids) scratch.seen.insert(id);
  std::size_t count = ids.size();
  const auto put = [&](TokenId id) {
    if (scratch.seen.insert(id)) all[count++] = id;
  };
  for (std::size_t b = 0; b < edits.bias_count; ++b) put(edits.bias[b].id);
  if (with_forbidden) edits.allowed.visit_forbidden(vocab, put);
  return {all, count};
}

/// Whether these candidates are all that may be among the k best, surely or but for a small probability.
inline bool are_proven(const Candidates& candidates) {
  return candidates.certified || candidates.confidence > 0.0;
}

/// Whether k of these tokens are allowed. Cost: O(1) without a mask.
inline bool allows_k(const Query& query, std::span<const TokenId> ids) {
  if (ids.size() < query.k) return false;
  if (query.edits.allowed.empty()) return true;
  const auto is_allowed = [&query](TokenId id) { return query.edits.allows(id); };
  return static_cast<std::size_t>(std::count_if(ids.begin(), ids.end(), is_allowed)) >= query.k;
}

/// Whether an answer can be chosen from these candidates: at least k are proposed, and as many of these are
/// allowed; where they are proven, of with_edited_tokens(). Others that are there for their biases alone do
/// not stand for better ones that were not proposed. Cost: O(1) without a mask.
inline bool has_answer(const Candidates& candidates, const Query& query, std::size_t vocab,
                       Workspace& workspace) {
  if (!are_proven(candidates)) return allows_k(query, candidates.ids);
  if (candidates.ids.size() < query.k) return false;
  return query.edits.allowed.empty() ||
         allows_k(query, with_edited_tokens(query, candidates, vocab, workspace));
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

/// The learned mass outside of with_edited_tokens(), given `count` of them and their unedited logits: those
/// that are there for the edits alone are not outside any more.
inline double learned_outside(const Candidates& candidates, std::size_t count, const float* logits,
                              Workspace& workspace) {
  const std::size_t proposed = candidates.ids.size();
  if (candidates.edited_apart && count > proposed) {
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

/// Leaves of what was learned of the mass outside that of the rows which are allowed. All edited rows are
/// taken off, as for an answer; the biased ones that are allowed are outside of the candidates, so their own
/// mass is put back.
inline void take_off_forbidden(const SoftmaxLayer& layer, const Query& query, Workspace& workspace,
                               Candidates& candidates) {
  if (!takes_off_forbidden(query, candidates)) return;
  const auto rows = with_edited_tokens(query, candidates, layer.vocab(), workspace);
  auto* const logits = workspace.scratch<AnswerScratch>().logits.get<float>(rows.size());
  scan_gathered(workspace, layer.rows(), rows.data(), rows.size(), query.h, logits);
  double outside = learned_outside(candidates, rows.size(), logits, workspace);
  for (std::size_t i = candidates.ids.size(); i < rows.size(); ++i) {
    if (query.edits.allows(rows[i])) outside = kernels::log_add_exp(outside, static_cast<double>(logits[i]));
  }
  candidates.outside = outside;
  candidates.most_outside = std::numeric_limits<double>::infinity();
  candidates.edited_apart = false;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
