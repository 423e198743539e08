// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How speculative sampling went.
struct SpeculativeReport {
  std::size_t drafts = 0;       ///< K
  std::size_t rounds = 0;       ///< target passes
  std::size_t drafted = 0;      ///< tokens drafted
  std::size_t accepted = 0;     ///< drafts accepted
  std::size_t produced = 0;     ///< tokens appended
  std::size_t given = 0;        ///< tokens that the rounds gave, those beyond the end or the count included
  double draft_seconds = 0.0;   ///< in the draft model
  double target_seconds = 0.0;  ///< in the target model

  /// r, the mean number of tokens a round gave over K + 1, the most that it could. 0 before the first round.
  double acceptance_rate() const;

  /// Seconds for `tokens` tokens as the paper predicts them: N/(r(K+1)) · (K·t_draft + t_target), from the
  /// means that were measured.
  double predicted_seconds(std::size_t tokens) const;
};

inline double SpeculativeReport::acceptance_rate() const {
  if (rounds == 0) return 0.0;
  return static_cast<double>(given) / static_cast<double>(rounds * (drafts + 1));
}

inline double SpeculativeReport::predicted_seconds(std::size_t tokens) const {
  if (rounds == 0) return 0.0;
  const double draft = draft_seconds / static_cast<double>(drafted);
  const double target = target_seconds / static_cast<double>(rounds);
  const auto most = static_cast<double>(drafts + 1);
  return static_cast<double>(tokens) / (acceptance_rate() * most) *
         (static_cast<double>(drafts) * draft + target);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
