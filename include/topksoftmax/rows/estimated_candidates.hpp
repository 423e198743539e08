// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
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

/// The `wanted` tokens with the highest of `vocab` estimated logits, of equals the lower ids; all others keep
/// their estimates in log Z (Normalizer::low_rank). Every token where so many are not allowed. Changes the
/// estimates. Works in Workspace::screen[4] and Workspace::candidates.
inline Candidates best_estimated(const Query& query, float* estimates, std::size_t vocab, std::size_t wanted,
                                 Workspace& workspace) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  Candidates candidates;
  kernels::leave_out_edited(query.edits, vocab, estimates);
  EstimatedScratch& scratch = workspace.scratch<EstimatedScratch>();
  auto* const maxima = scratch.maxima.get<float>(vocab / 8 + 2 * kernels::kSlack);
  auto* const ids = scratch.ids.get<TokenId>(vocab + kernels::kSlack);
  const std::size_t found = kernels::promising(estimates, vocab, wanted, maxima, ids);
  if (found < wanted) {
    candidates.everything = true;
    return candidates;
  }
  std::nth_element(ids, ids + (wanted - 1), ids + found, [estimates](TokenId a, TokenId b) {
    return estimates[a] != estimates[b] ? estimates[a] > estimates[b] : a < b;
  });
  std::sort(ids, ids + wanted);
  candidates.ids = {ids, wanted};
  if (!query.probabilities) return candidates;

  for (const TokenId id : candidates.ids) estimates[id] = nothing;
  candidates.normalizer = Normalizer::low_rank;
  const float max = kernels::max(estimates, vocab);
  if (max > nothing) {
    candidates.outside = candidates.outside_low = candidates.outside_high =
        static_cast<double>(max) + std::log(kernels::sum_exp(estimates, vocab, max));
  }
  return candidates;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
