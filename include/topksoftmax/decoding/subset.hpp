// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The softmax over some tokens alone, as a reranker takes that of "yes" and "no": log_probs[i] becomes the
/// logarithm of the share that ids[i] has of their probability after the context h [d]; −∞ for tokens that
/// the mask forbids, and of others at least the lowest finite value. Returns log Σ exp(logit) over them: with
/// an answer's log_z, their probability. No id may be named twice. Exact, within float32 logits, on every
/// backend. Cost: ids.size()·d weights and exponentials. Throws as TopKSoftmax::logits_of does.
///
/// Where the tokens are a range or a large set, ask with them as the mask: the answer's log_z is theirs then,
/// and so are its bounds.
inline double log_softmax_over(const TopKSoftmax& head, std::span<const float> h,
                               std::span<const TokenId> ids, const QueryOptions& options,
                               const Workspace& workspace, std::span<float> log_probs) {
  head.logits_of(h, ids, options, workspace, log_probs);
  const double log_z = detail::log_sum_exp(log_probs, 1.0);
  if (log_z == -std::numeric_limits<double>::infinity()) return log_z;
  constexpr auto kLowest = static_cast<double>(std::numeric_limits<float>::lowest());
  for (float& value : log_probs) {
    if (value == detail::kForbidden) continue;
    value = static_cast<float>(std::max(static_cast<double>(value) - log_z, kLowest));
  }
  return log_z;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
