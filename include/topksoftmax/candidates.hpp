// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a screener proposes for one context. Its spans live in the screener or in its own scratch of the
/// workspace (Workspace::scratch) until the screener works there again.
struct Candidates {
  /// The tokens to score, each once. Forbidden ones do no harm. Tokens that a query biases need not be among
  /// them.
  std::span<const TokenId> ids;

  /// Copies of the candidates' rows in one piece, row i that of ids[i]; null: they are gathered from the
  /// layer.
  const kernels::Rows* packed = nullptr;

  /// The logits of ids, if the screener had to compute them by the exact kernel already; they may be changed.
  float* logits = nullptr;

  /// log Σ exp(logit) over the tokens that are not in ids, as TopK::log_z is to count it; −∞: as impossible.
  double outside = -std::numeric_limits<double>::infinity();
  /// Its bounds, for TopK::log_z_low and log_z_high where Normalizer::interval.
  double outside_low = -std::numeric_limits<double>::infinity();
  /// The upper of the two.
  double outside_high = -std::numeric_limits<double>::infinity();

  /// With Normalizer::learned, the most that `outside` may exceed log Σ exp over ids by; a larger value is
  /// cut to that.
  double most_outside = std::numeric_limits<double>::infinity();

  /// What log Z means when the tokens outside are counted so.
  Normalizer normalizer = Normalizer::candidates;

  /// The candidates are proven to hold the exact top-k, …
  bool certified = false;
  /// … or do with such a probability at the least (TopK::confidence).
  double confidence = 0.0;

  /// The group of contexts that this one belongs to for the screener, where these are the candidates that a
  /// query without options has, so that the mass outside of them can be learned (OutsideMass); no_group:
  /// other candidates.
  std::size_t group = no_group;
  /// The `group` of candidates that nothing can be learned for.
  static constexpr std::size_t no_group = std::numeric_limits<std::size_t>::max();

  /// The screener gives up: every token that is allowed is to be scored.
  bool everything = false;
  /// What a screener proposes that gives up at once.
  static Candidates all() { return {.ids = {}, .everything = true}; }

  /// Tokens that a query biases or forbids are not among ids, whatever their logits. With
  /// Normalizer::learned, `outside` is then that of the best ids.size() of ids and these tokens, by the
  /// layer's logits.
  bool edited_apart = false;

  std::size_t screened = 0;    ///< QueryWork::screened
  std::size_t bytes_read = 0;  ///< by the screener
};

/// The exact logits of the candidates: logits[i] that of ids[i]. Reads candidates·d weights, on the
/// workspace's crew.
TOPKSOFTMAX_EXPORT void score_candidates(const SoftmaxLayer& layer, const Candidates& candidates,
                                         const float* h, const Workspace& workspace, float* logits);

/// The bounds of log Z where kernels::sum_exp has found the candidates' logits to sum up to
/// exp(inside): with the rounding of that where they are to be proven (Normalizer::interval).
TOPKSOFTMAX_EXPORT std::pair<double, double> log_z_bounds(const Candidates& candidates, double inside);

/// rescore → select → normalise: exact logits of the candidates (and of the tokens that the query biases),
/// the k best of them, log Z. Where fewer than query.k of them are allowed, it answers from the whole
/// vocabulary instead, unless Query::fall_back is false. Reads candidates·d weights.
TOPKSOFTMAX_EXPORT void answer_from_candidates(const SoftmaxLayer& layer, const Query& query,
                                               const Candidates& candidates, Workspace& workspace,
                                               TopK& answer);

/// The same for queries with the same options that share their candidates: one batched product scores these
/// for all of them. Candidates::screened and bytes_read are a context's share of what screening the batch
/// took. Reads candidates·d weights once for every 16 contexts.
TOPKSOFTMAX_EXPORT void answer_batch_from_candidates(const SoftmaxLayer& layer, const QueryBatch& batch,
                                                     const Candidates& candidates, Workspace& workspace,
                                                     TopK* answers);

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/candidates-inl.hpp"
#endif
