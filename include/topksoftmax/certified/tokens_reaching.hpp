// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "topksoftmax/bounded_tokens.hpp"
#include "topksoftmax/certified/bounded_rows.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/bounds_view.hpp"
#include "topksoftmax/certified/divided_bounds.hpp"
#include "topksoftmax/certified/reaching_rows.hpp"
#include "topksoftmax/certified/survivors.hpp"
#include "topksoftmax/certified/threshold.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/types.hpp"

// Tokens with their bounds, for those who look for something else than the best (decoding/rivals.hpp).
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Some tokens with large logits: see TopKSoftmax::likely_tokens().
inline bool likely_tokens(const BoundedQuery& bounded, std::size_t count, std::vector<ScoredToken>& tokens) {
  if (!bounded.bounds.usable) return false;
  std::size_t bytes_read = 0;
  const BoundedRows rows = likely_rows(bounded, count);
  const ScoredTokens best = score_most_promising(bounded, rows, count, bytes_read);
  for (std::size_t i = 0; i < best.count; ++i) tokens.push_back({best.logits[i], best.ids[i]});
  return true;
}

/// All tokens that may reach a logit, by their prefixes and tails: see TopKSoftmax::tokens_reaching().
inline bool tokens_reaching(const BoundedQuery& bounded, float least, BoundedTokens& tokens) {
  if (!can_rule_out(bounded, least)) return false;
  Query query = bounded.query;
  query.probabilities = false;  // of the others
  const BoundedQuery alone = {bounded.layer, bounded.index, query, bounded.bounds, bounded.workspace};
  ReachingRows rows = rows_reaching(alone, least);
  if (!bounded.index.tails.empty()) {
    tail_bounds(bounded.workspace, bounded.index.tails.tails(), bounded.bounds.tail, rows.places, rows.count,
                rows.estimates, rows.radii);
    keep_reaching(alone, least, rows);
  }
  const std::size_t count = rows.count;
  const BoundsView logits = logit_bounds(bounded, rows.bounds());
  tokens.ids.resize(count);
  tokens.most.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens.ids[i] = bounded.index.token(rows.place(i));
    tokens.most[i] = logits.most(i);
  }
  const kernels::LogitEdits& edits = bounded.query.edits;
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    tokens.ids.push_back(edits.bias[b].id);
    tokens.most.push_back(std::numeric_limits<float>::infinity());
  }
  return true;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
