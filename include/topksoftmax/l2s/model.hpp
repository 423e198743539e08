// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/l2s/candidate_sets.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What the objective of Eq. 7 is made of, as means over the contexts.
struct ScreeningLoss {
  double objective = 0.0;  ///< Eq. 7 / N, a label counting as much as its weight
  double missed = 0.0;     ///< labels of weight 1 outside the set
  double set_size = 0.0;   ///< L̄
};

/// What training yields.
struct L2SModel {
  std::vector<float> v;  ///< cluster vectors [r×d]
  /// Number of clusters, r.
  std::size_t clusters = 0;
  /// The candidates of each cluster.
  CandidateSets sets;
  /// Eq. 7 on the training contexts after k-means and after each round, without L2SOptions::prior; the
  /// clusters are the best of them.
  std::vector<ScreeningLoss> history;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
