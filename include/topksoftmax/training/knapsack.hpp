// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "topksoftmax/export.hpp"
#include "topksoftmax/training/candidate_sets.hpp"

namespace topksoftmax {

struct KnapsackOptions {
  double budget = 300.0;  ///< B, the mean set size that a context may meet
  double lambda = 3e-4;   ///< λ of Eq. 6: the price of a token that is no label
};

/// Chooses the candidate sets by L2S's greedy knapsack (§3, "Optimization"): item (t, s) adds token s to
/// C(t). Its weight is the share of contexts in cluster t, N_t/N, by which it raises the mean set size L̄; its
/// value what it takes off the objective of Eq. 7, n_ts·(1 + λ) − λ·N_t, n_ts being the contexts of t whose
/// label s is. Items are added by falling value per weight, ties to the lower cluster and then token, while L̄
/// ≤ B; those without value never.
///
/// `assignment` [N] is each context's cluster. Cost: O(N·depth + items·log items).
TOPKSOFTMAX_EXPORT CandidateSets choose_candidates(std::span<const std::int32_t> assignment,
                                                   const Labels& labels, std::size_t clusters,
                                                   const KnapsackOptions& options);

/// What the objective of Eq. 7 is made of, as means over the contexts.
struct ScreeningLoss {
  double objective = 0.0;  ///< Eq. 7 / N, a label counting as much as its weight
  double missed = 0.0;     ///< labels of weight 1 outside the set
  double set_size = 0.0;   ///< L̄
};

/// Eq. 7 for given assignments and sets.
TOPKSOFTMAX_EXPORT ScreeningLoss screening_loss(std::span<const std::int32_t> assignment,
                                                const Labels& labels, const CandidateSets& sets,
                                                double lambda);

}  // namespace topksoftmax
