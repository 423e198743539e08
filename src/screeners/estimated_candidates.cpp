// SPDX-License-Identifier: Apache-2.0
#include "screeners/estimated_candidates.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {

Candidates best_estimated(const Query& query, float* estimates, std::size_t vocab, std::size_t wanted,
                          Workspace& workspace) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  const kernels::Implementation& kernel = kernels::active();
  Candidates candidates;
  kernels::leave_out_edited(query.edits, vocab, estimates);
  auto* const maxima = workspace.screen[4].get<float>(vocab / 8 + 2 * kernels::kSlack);
  auto* const ids = workspace.candidates.get<TokenId>(vocab + kernels::kSlack);
  const std::size_t found = kernel.promising(estimates, vocab, wanted, maxima, ids);
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
  const float max = kernel.max(estimates, vocab);
  if (max > nothing) {
    candidates.outside = candidates.outside_low = candidates.outside_high =
        static_cast<double>(max) + std::log(kernel.sum_exp(estimates, vocab, max));
  }
  return candidates;
}

}  // namespace topksoftmax
