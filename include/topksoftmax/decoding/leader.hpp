// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include "topksoftmax/config.hpp"
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

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
