// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/estimated_candidates.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/numeric/largest.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What best_estimated() works in.
struct EstimatedScratch {
  ScratchBuffer maxima;
  ScratchBuffer ids;
};

TOPKSOFTMAX_INLINE Candidates best_estimated(const Query& query, const LogitTransform& transform,
                                             float* estimates, std::size_t vocab, std::size_t wanted,
                                             Workspace& workspace) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  kernels::leave_out_edited(query.edits, vocab, estimates);
  EstimatedScratch& scratch = workspace.scratch<EstimatedScratch>();
  auto* const maxima = scratch.maxima.get<float>(kernels::maxima_room(vocab));
  auto* const ids = scratch.ids.get<TokenId>(vocab + kernels::kSlack);
  const std::size_t found = kernels::promising(estimates, vocab, wanted, maxima, ids);
  if (found < wanted) return Candidates::all();
  put_largest_first(ids, found, wanted, estimates);
  std::sort(ids, ids + wanted);
  Candidates candidates;
  candidates.ids = {ids, wanted};
  if (!query.probabilities) return candidates;

  for (const TokenId id : candidates.ids) estimates[id] = nothing;
  candidates.normalizer = Normalizer::low_rank;
  kernels::transform(transform, estimates, vocab);
  candidates.outside = kernels::log_sum_exp(estimates, vocab);
  return candidates;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
