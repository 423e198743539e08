// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>

#include "topksoftmax/answer_scratch.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline bool is_gathered(const SoftmaxLayer& layer, const Query& query) {
  return !query.edits.allowed.empty() &&
         query.edits.allowed.count(layer.vocab()) <= gathered_allowed(layer.vocab());
}

/// Whether they are for all queries of a batch, which then have the same options.
inline bool is_gathered(const SoftmaxLayer& layer, const QueryBatch& batch) {
  return batch.same_options() && is_gathered(layer, batch[0]);
}

/// The work of scoring the allowed tokens alone.
inline QueryWork gathering_work(const SoftmaxLayer& layer, std::size_t allowed) {
  return {.bytes_read = layer.rows().bytes(allowed), .candidates = allowed};
}

/// Some tokens, ascending, and their logits.
struct GatheredTokens {
  const TokenId* ids;
  const float* logits;
};

/// The `allowed` tokens that query.edits allows, in the workspace until it is used for this again.
inline GatheredTokens gather_allowed(const SoftmaxLayer& layer, const Query& query, std::size_t allowed,
                                     Workspace& workspace) {
  AnswerScratch& scratch = workspace.scratch<AnswerScratch>();
  auto* const ids = scratch.ids.get<TokenId>(allowed);
  std::size_t count = 0;
  query.edits.allowed.visit_allowed(layer.vocab(), [&](TokenId id) { ids[count++] = id; });
  auto* const logits = scratch.logits.get<float>(allowed);
  scan_gathered(workspace, layer.rows(), ids, allowed, query.h, logits);
  for (std::size_t b = 0; b < query.edits.bias_count; ++b) {
    const TokenBias& bias = query.edits.bias[b];
    const auto* const found = std::lower_bound(ids, ids + allowed, bias.id);
    if (found == ids + allowed || *found != bias.id) continue;
    float& logit = logits[found - ids];
    logit = kernels::add_bias(logit, bias.bias);
  }
  return {ids, logits};
}

/// Takes them into the heap and (if it is not null) the sum.
inline void absorb_allowed(const SoftmaxLayer& layer, const Query& query, std::size_t allowed,
                           Workspace& workspace, kernels::TopKHeap& heap, kernels::LogSumExp* sum) {
  const GatheredTokens found = gather_allowed(layer, query, allowed, workspace);
  if (query.k > 0) kernels::select(found.logits, found.ids, allowed, heap);
  if (sum != nullptr) kernels::add_exp(found.logits, allowed, *sum);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE void store_tokens(std::span<const ScoredToken> tokens, TopK& answer) {
  answer.ids.reserve(tokens.size());
  answer.logits.reserve(tokens.size());
  answer.ids.resize(tokens.size());
  answer.logits.resize(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    answer.ids[i] = tokens[i].id;
    answer.logits[i] = tokens[i].logit;
  }
}

TOPKSOFTMAX_INLINE void store_exact(kernels::TopKHeap& heap, const Query& query,
                                    const kernels::LogSumExp& sum, const QueryWork& work, TopK& answer) {
  store_tokens(heap.sort(), answer);
  if (query.probabilities) {
    store_log_z(Normalizer::exact, sum.value(), answer);
  } else {
    store_no_log_z(answer);
  }
  answer.certified = true;
  answer.confidence = 1.0;
  answer.work = work;
}

TOPKSOFTMAX_INLINE void score_all(const SoftmaxLayer& layer, const QueryBatch& batch,
                                  const Workspace& workspace, float* logits) {
  const std::size_t rows = layer.vocab();
  scan_batch(workspace, layer.rows(), batch, logits);
  for (std::size_t q = 0; q < batch.size(); ++q)
    kernels::apply_edits(batch.edits(q), rows, logits + q * rows);
}

TOPKSOFTMAX_INLINE void score_allowed(const SoftmaxLayer& layer, const QueryBatch& batch,
                                      Workspace& workspace, float* logits) {
  if (!detail::is_gathered(layer, batch)) return score_all(layer, batch, workspace, logits);
  const std::size_t rows = layer.vocab();
  const std::size_t allowed = batch.edits(0).allowed.count(rows);
  std::fill_n(logits, batch.size() * rows, detail::kForbidden);
  for (std::size_t q = 0; q < batch.size(); ++q, logits += rows) {
    const detail::GatheredTokens found = detail::gather_allowed(layer, batch[q], allowed, workspace);
    for (std::size_t i = 0; i < allowed; ++i) logits[found.ids[i]] = found.logits[i];
  }
}

TOPKSOFTMAX_INLINE QueryWork absorb_all(const SoftmaxLayer& layer, const QueryBatch& batch,
                                        Workspace& workspace, kernels::TopKHeap* heaps,
                                        kernels::LogSumExp* sums) {
  if (detail::is_gathered(layer, batch)) {
    const std::size_t allowed = batch.edits(0).allowed.count(layer.vocab());
    for (std::size_t q = 0; q < batch.size(); ++q) {
      detail::absorb_allowed(layer, batch[q], allowed, workspace, heaps[q],
                             sums == nullptr ? nullptr : sums + q);
    }
    return detail::gathering_work(layer, allowed);
  }
  detail::AnswerScratch& scratch = workspace.scratch<detail::AnswerScratch>();
  if (workspace.crew().threads > 1) {
    // The logits of all tokens are a small part of what is read of W.
    const std::size_t rows = layer.vocab();
    auto* const logits = scratch.logits.get<float>(batch.size() * rows);
    scan_batch(workspace, layer.rows(), batch, logits);
    detail::share(workspace, batch.size(), rows * sizeof(float), [&](std::size_t first, std::size_t count) {
      for (std::size_t q = first; q < first + count; ++q) {
        float* const of_context = logits + q * rows;
        kernels::apply_edits(batch.edits(q), rows, of_context);
        kernels::fused_select(of_context, nullptr, rows, heaps[q], sums == nullptr ? nullptr : sums + q);
      }
    });
  } else if (batch.size() == 1) {
    kernels::fused_scan(layer.rows(), batch.contexts(), batch.edits(0), heaps[0], sums);
  } else {
    auto* const edits = scratch.edits.get<kernels::LogitEdits>(batch.size());
    for (std::size_t q = 0; q < batch.size(); ++q) new (edits + q) kernels::LogitEdits(batch.edits(q));
    kernels::fused_scan_batch(layer.rows(), batch.contexts(), batch.stride(), batch.size(), edits, heaps,
                              sums);
  }
  return full_scan_work(layer);
}

TOPKSOFTMAX_INLINE void answer_from_all(const SoftmaxLayer& layer, const Query& query, Workspace& workspace,
                                        TopK& answer) {
  auto* const tokens = workspace.scratch<detail::AnswerScratch>().best.get<ScoredToken>(query.k);
  kernels::TopKHeap heap(tokens, query.k);
  kernels::LogSumExp sum;
  const QueryWork work =
      absorb_all(layer, QueryBatch(query), workspace, &heap, query.probabilities ? &sum : nullptr);
  store_exact(heap, query, sum, work, answer);
}

TOPKSOFTMAX_INLINE void answer_batch_from_all(const SoftmaxLayer& layer, const QueryBatch& batch,
                                              Workspace& workspace, TopK* answers) {
  detail::AnswerScratch& scratch = workspace.scratch<detail::AnswerScratch>();
  std::size_t room = 0;
  for (std::size_t q = 0; q < batch.size(); ++q) room += batch[q].k;
  auto* tokens = scratch.best.get<ScoredToken>(room);
  auto* const heaps = scratch.heaps.get<kernels::TopKHeap>(batch.size());
  auto* const sums = scratch.sums.get<kernels::LogSumExp>(batch.size());
  for (std::size_t q = 0; q < batch.size(); ++q) {
    const std::size_t k = batch[q].k;
    new (heaps + q) kernels::TopKHeap(tokens, k);
    new (sums + q) kernels::LogSumExp();
    tokens += k;
  }
  const bool with_sums = batch.any_of([](const Query& query) { return query.probabilities; });
  const QueryWork work = absorb_all(layer, batch, workspace, heaps, with_sums ? sums : nullptr);
  for (std::size_t q = 0; q < batch.size(); ++q) store_exact(heaps[q], batch[q], sums[q], work, answers[q]);
}

TOPKSOFTMAX_INLINE void answer_from_allowed(const SoftmaxLayer& layer, const Query& query,
                                            std::size_t allowed, Workspace& workspace, TopK& answer) {
  detail::AnswerScratch& scratch = workspace.scratch<detail::AnswerScratch>();
  kernels::TopKHeap heap(scratch.best.get<ScoredToken>(std::max<std::size_t>(query.k, 1)), query.k);
  kernels::LogSumExp sum;
  detail::absorb_allowed(layer, query, allowed, workspace, heap, query.probabilities ? &sum : nullptr);
  store_exact(heap, query, sum, detail::gathering_work(layer, allowed), answer);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
