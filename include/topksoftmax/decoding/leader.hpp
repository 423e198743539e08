// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline constexpr double kNoScore = -std::numeric_limits<double>::infinity();

/// The token with the largest score that was met, log weight + Gumbel; of equal ones that with the lowest id,
/// in whatever order they come.
struct Leader {
  double score = kNoScore;
  ScoredToken token{0.0F, std::numeric_limits<TokenId>::max()};

  bool is_beaten_by(double offered, TokenId id) const {
    return offered > score || (offered == score && id <= token.id);
  }

  /// Whether it leads now.
  bool offer(double offered, const ScoredToken& by) {
    if (!is_beaten_by(offered, by.id)) return false;
    score = offered;
    token = by;
    return true;
  }
};

/// Offers an answer's tokens from one place to another, by the scores of their places; returns the place of
/// the one that leads.
template <class ScoreOf>
std::size_t lead_listed(const TopK& answer, std::size_t first, std::size_t end, const ScoreOf& score_of,
                        Leader& leader) {
  std::size_t place = first;
  for (std::size_t i = first; i < end; ++i) {
    if (leader.offer(score_of(i), {answer.logits[i], answer.ids[i]})) place = i;
  }
  return place;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
