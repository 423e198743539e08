// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The logits of every token for the contexts of a batch, edits applied (−∞: forbidden): [batch × V]. Reads
/// V·d weights once; the workspace's crew shares what is read.
TOPKSOFTMAX_EXPORT void score_all(const SoftmaxLayer& layer, const QueryBatch& batch,
                                  const Workspace& workspace, float* logits);

/// The same, but where an eighth of the tokens or fewer are allowed for all reads only their rows, for each
/// context. Of queries with the same options.
TOPKSOFTMAX_EXPORT void score_allowed(const SoftmaxLayer& layer, const QueryBatch& batch,
                                      Workspace& workspace, float* logits);

/// Takes every token that may be returned into the heaps and (if `sums` is not null) the sums of a batch's
/// contexts; Query::k does not count. Returns the work of one. Reads V·d weights once, or where the same
/// eighth of the tokens or fewer are allowed for all, only their rows, for each context.
TOPKSOFTMAX_EXPORT QueryWork absorb_all(const SoftmaxLayer& layer, const QueryBatch& batch,
                                        Workspace& workspace, kernels::TopKHeap* heaps,
                                        kernels::LogSumExp* sums);

/// Answers from the logits of every token that may be returned, in one fused pass: what any backend falls
/// back to. Exact, certified, normalised over all tokens. Reads V·d weights, or where an eighth of the tokens
/// or fewer are allowed, only their rows.
TOPKSOFTMAX_EXPORT void answer_from_all(const SoftmaxLayer& layer, const Query& query, Workspace& workspace,
                                        TopK& answer);

/// The same for a batch. Reads V·d weights once, or where the same eighth of the tokens or fewer are allowed
/// for all, only their rows, for each context.
TOPKSOFTMAX_EXPORT void answer_batch_from_all(const SoftmaxLayer& layer, const QueryBatch& batch,
                                              Workspace& workspace, TopK* answers);

/// The same for few allowed tokens: gathers the rows of the `allowed` that query.edits allows. Reads
/// allowed·d weights.
TOPKSOFTMAX_EXPORT void answer_from_allowed(const SoftmaxLayer& layer, const Query& query,
                                            std::size_t allowed, Workspace& workspace, TopK& answer);

/// Puts the tokens into an answer, which stays untouched if memory runs out.
TOPKSOFTMAX_EXPORT void store_tokens(std::span<const ScoredToken> tokens, TopK& answer);

/// The same for a heap that has seen every token that may be returned, with the log-sum-exp of their logits.
/// The heap is spent then.
TOPKSOFTMAX_EXPORT void store_exact(kernels::TopKHeap& heap, const Query& query,
                                    const kernels::LogSumExp& sum, const QueryWork& work, TopK& answer);

/// The work of scoring every token.
inline QueryWork full_scan_work(const SoftmaxLayer& layer) {
  return {.bytes_read = layer.bytes(), .candidates = layer.vocab()};
}

/// Sets the normaliser of an answer to a log Z that is known.
inline void store_log_z(Normalizer normalizer, double log_z, TopK& answer) {
  answer.normalizer = normalizer;
  answer.log_z = answer.log_z_low = answer.log_z_high = log_z;
}
/// The same where no probabilities are wanted.
inline void store_no_log_z(TopK& answer) {
  store_log_z(Normalizer::none, std::numeric_limits<double>::quiet_NaN(), answer);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/exhaustive-inl.hpp"
#endif
