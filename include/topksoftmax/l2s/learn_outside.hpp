// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/l2s/knapsack.hpp"
#include "topksoftmax/l2s/l2s.hpp"
#include "topksoftmax/l2s/model.hpp"
#include "topksoftmax/l2s/options.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/labels.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/learning/outside_sample.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/spherical_kmeans.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A model's clusters with the sets that contexts outside of one fifth choose.
inline L2SModel without_fifth(std::size_t fifth, const L2SModel& model,
                              const std::vector<std::int32_t>& assignment, const Labels& labels,
                              const KnapsackOptions& knapsack) {
  Labels others = {.ids = {}, .weights = {}, .depth = labels.depth, .top = labels.top};
  std::vector<std::int32_t> clusters;
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    if (fifth_of(i, assignment.size()) == fifth) continue;
    clusters.push_back(assignment[i]);
    const auto ids = labels.of(i);
    const auto weights = labels.weights_of(i);
    others.ids.insert(others.ids.end(), ids.begin(), ids.end());
    others.weights.insert(others.weights.end(), weights.begin(), weights.end());
  }
  return {.v = model.v,
          .clusters = model.clusters,
          .sets = choose_candidates(clusters, others, model.clusters, knapsack),
          .history = {}};
}

/// Learns the mass outside of the sets as learn_outside_mass() does. A context's own best tokens are in the
/// sets that it helped to choose, and new contexts are not so lucky: so the mass outside is measured, fifth
/// by fifth, with sets that the contexts of the other fifths choose (cross-fitting). Cost: that of
/// learn_outside_mass(), N·r·d multiply-adds, and five knapsacks.
inline std::optional<OutsideMass> learn_l2s_outside(const SoftmaxLayer& layer, const L2SModel& model,
                                                    const Contexts& contexts, const Labels& labels,
                                                    const L2SOptions& options, const Executor& executor,
                                                    const StepProgress& report) {
  const std::size_t taken = std::min(options.outside_sample, contexts.count);
  if (taken < kFewestSampled) return std::nullopt;
  const std::vector<std::int32_t> assignment = assign_clusters(contexts, model.v, model.clusters, executor);
  const KnapsackOptions knapsack = {
      .budget = options.budget, .lambda = options.lambda, .prior = options.prior};
  std::vector<L2SScreener> screeners;
  for (std::size_t fifth = 0; fifth < kFifths; ++fifth) {
    L2SModel of_others = without_fifth(fifth, model, assignment, labels, knapsack);
    screeners.emplace_back(std::move(of_others), options, layer, "l2s");
  }
  const auto screener_of = [&](std::size_t i) -> const L2SScreener& {
    return screeners[fifth_of(spaced_place(i, taken, contexts.count), contexts.count)];
  };
  const OutsideSample sample =
      measure_outside(layer, screener_of, evenly_spaced(contexts, taken), report, executor);
  return fit_outside_mass(sample, model.clusters, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
