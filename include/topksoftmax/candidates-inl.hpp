// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>

#include "topksoftmax/answer_scratch.hpp"
#include "topksoftmax/candidates.hpp"
#include "topksoftmax/candidates_edited.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline void answer_from_all_after(const SoftmaxLayer& layer, const Query& query, const QueryWork& screening,
                                  Workspace& workspace, TopK& answer) {
  answer_from_all(layer, query, workspace, answer);
  answer.work.bytes_read += screening.bytes_read;
  answer.work.screened = screening.screened;
  answer.work.fell_back = true;
}

/// Contexts of a batch whose logits are held at a time.
inline constexpr std::size_t kContextsAtOnce = 16;

/// The work of screening and of scoring `count` candidates.
inline QueryWork work_of(const SoftmaxLayer& layer, const Candidates& candidates, std::size_t count) {
  return {.bytes_read = candidates.bytes_read + layer.rows().bytes(count),
          .screened = candidates.screened,
          .candidates = count};
}

/// The k best of the tokens, best first, in the workspace.
inline std::span<const ScoredToken> select_best(const float* logits, std::span<const TokenId> ids,
                                                std::size_t k, Workspace& workspace) {
  auto* const best = workspace.scratch<AnswerScratch>().best.get<ScoredToken>(k);
  return {best, kernels::rank_best(logits, ids.data(), ids.size(), k, best)};
}

/// Sets log Z of an answer whose candidates sum up to exp(inside).
inline void normalise(const Candidates& candidates, double inside, double outside, TopK& answer) {
  answer.normalizer = candidates.normalizer;
  answer.log_z = kernels::log_add_exp(inside, outside);
  if (candidates.normalizer == Normalizer::interval) {
    std::tie(answer.log_z_low, answer.log_z_high) = log_z_bounds(candidates, inside);
    answer.log_z = std::clamp(answer.log_z, answer.log_z_low, answer.log_z_high);
  } else {
    answer.log_z_low = answer.log_z_high = answer.log_z;
  }
}

/// select → normalise. The logits are edited in place. False, and the answer untouched, if fewer than query.k
/// tokens are left and the query wants to fall back.
inline bool answer_from_logits(const Query& query, const Candidates& candidates, std::span<const TokenId> ids,
                               const QueryWork& work, float* logits, Workspace& workspace, TopK& answer) {
  const bool may_lack = query.fall_back && query.edits.bias_count != 0 && !are_proven(candidates);
  if (may_lack && !allows_k(query, candidates.ids)) return false;
  const bool learned = query.probabilities && candidates.normalizer == Normalizer::learned;
  const bool edited = edits_tokens(query, candidates);
  double outside = candidates.outside;
  if (learned && edited) outside = learned_outside(candidates, ids.size(), logits, workspace);
  if (!query.edits.empty()) edit(query.edits, ids, logits);
  const std::span<const ScoredToken> best = select_best(logits, ids, query.k, workspace);
  if (query.fall_back && best.size() < query.k) return false;

  const double inside = query.probabilities ? kernels::log_sum_exp(logits, ids.size()) : 0.0;
  if (learned && !edited) outside = std::min(outside, inside + candidates.most_outside);
  store_tokens(best, answer);
  if (query.probabilities) {
    normalise(candidates, inside, outside, answer);
  } else {
    store_no_log_z(answer);
  }
  answer.certified = candidates.certified;
  answer.confidence = candidates.certified ? 1.0 : candidates.confidence;
  answer.work = work;
  return true;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE void score_candidates(const SoftmaxLayer& layer, const Candidates& candidates,
                                         const float* h, const Workspace& workspace, float* logits) {
  const std::size_t count = candidates.ids.size();
  if (candidates.packed != nullptr) {
    scan(workspace, *candidates.packed, 0, count, h, logits);
  } else {
    scan_gathered(workspace, layer.rows(), candidates.ids.data(), count, h, logits);
  }
}

TOPKSOFTMAX_INLINE std::pair<double, double> log_z_bounds(const Candidates& candidates, double inside) {
  const double rounding =
      candidates.normalizer == Normalizer::interval ? std::log1p(kernels::kSumExpError) : 0.0;
  return {kernels::log_add_exp(inside - rounding, candidates.outside_low),
          kernels::log_add_exp(inside + rounding, candidates.outside_high)};
}

TOPKSOFTMAX_INLINE void answer_from_candidates(const SoftmaxLayer& layer, const Query& query,
                                               const Candidates& candidates, Workspace& workspace,
                                               TopK& answer) {
  if (query.fall_back && (candidates.everything || candidates.ids.size() < query.k)) {
    return detail::answer_from_all_after(layer, query, detail::work_of(layer, candidates, 0), workspace,
                                         answer);
  }
  const auto ids = detail::with_edited_tokens(query, candidates, layer.vocab(), workspace);
  const bool edited = detail::edits_tokens(query, candidates);
  const bool scored = candidates.logits != nullptr && !edited;
  float* const logits =
      scored ? candidates.logits : workspace.scratch<detail::AnswerScratch>().logits.get<float>(ids.size());
  if (!scored && edited) {
    scan_gathered(workspace, layer.rows(), ids.data(), ids.size(), query.h, logits);
  } else if (!scored && !candidates.everything) {
    score_candidates(layer, candidates, query.h, workspace, logits);
  }
  const QueryWork work = detail::work_of(layer, candidates, ids.size());
  if (!detail::answer_from_logits(query, candidates, ids, work, logits, workspace, answer)) {
    detail::answer_from_all_after(layer, query, work, workspace, answer);
  }
}

TOPKSOFTMAX_INLINE void answer_batch_from_candidates(const SoftmaxLayer& layer, const QueryBatch& batch,
                                                     const Candidates& candidates, Workspace& workspace,
                                                     TopK* answers) {
  const Query query = batch[0];
  if (query.fall_back && (candidates.everything || candidates.ids.size() < query.k)) {
    for (std::size_t q = 0; q < batch.size(); ++q) {
      detail::answer_from_all_after(layer, batch[q], detail::work_of(layer, candidates, 0), workspace,
                                    answers[q]);
    }
    return;
  }
  const auto ids = detail::with_edited_tokens(query, candidates, layer.vocab(), workspace);
  const QueryWork work = detail::work_of(layer, candidates, ids.size());
  for (std::size_t first = 0; first < batch.size(); first += detail::kContextsAtOnce) {
    const QueryBatch some = batch.part(first, std::min(detail::kContextsAtOnce, batch.size() - first));
    auto* const logits =
        workspace.scratch<detail::AnswerScratch>().logits.get<float>(some.size() * ids.size());
    kernels::scan_gathered_batch(layer.rows(), ids.data(), ids.size(), some.contexts(), some.stride(),
                                 some.size(), logits);
    for (std::size_t q = 0; q < some.size(); ++q) {
      float* const row = logits + q * ids.size();
      TopK& answer = answers[first + q];
      if (!detail::answer_from_logits(some[q], candidates, ids, work, row, workspace, answer)) {
        detail::answer_from_all_after(layer, some[q], work, workspace, answer);
      }
    }
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE
