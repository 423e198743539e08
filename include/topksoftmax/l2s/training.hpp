// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/l2s/candidate_sets.hpp"
#include "topksoftmax/l2s/evened_contexts.hpp"
#include "topksoftmax/l2s/gumbel_softmax.hpp"
#include "topksoftmax/l2s/knapsack.hpp"
#include "topksoftmax/l2s/model.hpp"
#include "topksoftmax/l2s/options.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/labels.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/spherical_kmeans.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Algorithm 1 of L2S: spherical k-means, then `rounds` times {SGD on the clusters with the sets fixed;
/// knapsack for the sets with the clusters fixed}. The paper begins with empty sets, for which all clusters
/// cost the same and the gradient is 0; here a knapsack on the clusters of k-means chooses the first ones.
/// Keeps the round with the lowest objective, so that learning never ends worse than it began. Coordinates of
/// the contexts whose root mean square is more than 8 times the median one's are brought down to that while
/// it learns, in a copy of the contexts. Deterministic for a seed, for any number of threads of the executor,
/// which lends them. Throws Error for unusable options or contexts.
L2SModel train_l2s(const Contexts& contexts, const Labels& labels, const L2SOptions& options,
                   const Executor& executor = default_executor());

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The share of the work that k-means is, for the progress.
inline constexpr double kKMeansShare = 0.3;

/// Contexts that tell how sharply the clusters divide them.
inline constexpr std::size_t kScaleSample = 4096;

inline void check_labels(const Contexts& contexts, const Labels& labels) {
  if (contexts.count == 0) throw Error("l2s: there are no training contexts; at least 1 is needed");
  if (labels.count() != contexts.count) {
    throw Error("l2s: there are labels for " + std::to_string(labels.count()) + " contexts, and " +
                std::to_string(contexts.count) + " contexts");
  }
}

/// The factor for unit vectors v at which max_t P(t|h) has this mean on a sample of the contexts.
inline double scale_for(double sharpness, const Contexts& contexts, const std::vector<float>& v,
                        std::size_t clusters) {
  const Eigen::Map<const RowMajorMatrix> V(v.data(), static_cast<Eigen::Index>(clusters),
                                           static_cast<Eigen::Index>(contexts.dim));
  const RowMajorMatrix products = evenly_spaced(contexts, kScaleSample) * V.transpose();
  const RowMajorMatrix below = products.colwise() - products.rowwise().maxCoeff();
  double low = 1e-6;
  double high = 1e6;
  for (int step = 0; step < 50; ++step) {
    const double middle = std::sqrt(low * high);
    const Eigen::ArrayXf sums = (below * static_cast<float>(middle)).array().exp().rowwise().sum();
    (sums.inverse().mean() < static_cast<float>(sharpness) ? low : high) = middle;
  }
  return low;
}

/// The training on contexts as they are.
inline L2SModel train_as_given(const Contexts& contexts, const Labels& labels, const L2SOptions& options,
                               const Executor& executor) {
  const std::size_t clusters = std::min(options.clusters, contexts.count);
  KnapsackOptions knapsack = {.budget = options.budget, .lambda = options.lambda};
  L2SModel best;
  best.clusters = clusters;
  const auto told = [&options](double done) {
    tell(options.progress, "spherical k-means", kKMeansShare * done);
  };
  best.v = spherical_kmeans(contexts, {clusters, options.kmeans_iterations, options.seed, told}, executor);
  const double scale = scale_for(options.sharpness, contexts, best.v, clusters);
  for (float& x : best.v) x = static_cast<float>(scale * static_cast<double>(x));

  std::vector<std::int32_t> assignment = assign_clusters(contexts, best.v, clusters, executor);
  best.sets = choose_candidates(assignment, labels, clusters, knapsack);
  best.history.push_back(screening_loss(assignment, labels, best.sets, options.lambda));
  double lowest = best.history.back().objective;

  GumbelTrainer trainer(best.v, clusters,
                        {options.lambda, options.gamma, options.budget, options.temperature,
                         options.batch_size, options.learning_rate},
                        options.seed + 1);
  CandidateSets sets = best.sets;
  const std::size_t epochs = options.rounds * options.epochs;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    const double done = static_cast<double>(epoch) / static_cast<double>(epochs);
    tell(options.progress, "learning the clusters", kKMeansShare + (1.0 - kKMeansShare) * done);
    trainer.epoch(contexts, labels, sets, 1.0 - 0.9 * done, executor);
    if ((epoch + 1) % options.epochs != 0) continue;
    assignment = assign_clusters(contexts, trainer.v(), clusters, executor);
    sets = choose_candidates(assignment, labels, clusters, knapsack);
    best.history.push_back(screening_loss(assignment, labels, sets, options.lambda));
    if (best.history.back().objective < lowest) {
      lowest = best.history.back().objective;
      best.v = trainer.v();
      best.sets = sets;
    }
  }
  if (options.prior > 0.0) {
    knapsack.prior = options.prior;
    assignment = assign_clusters(contexts, best.v, clusters, executor);
    best.sets = choose_candidates(assignment, labels, clusters, knapsack);
  }
  tell(options.progress, "learning the clusters", 1.0);
  return best;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline L2SModel train_l2s(const Contexts& contexts, const Labels& labels, const L2SOptions& options,
                          const Executor& executor) {
  detail::check_labels(contexts, labels);
  detail::check(options);
  const detail::EvenedContexts even(contexts);
  L2SModel model = detail::train_as_given(even.contexts(), labels, options, executor);
  even.fold_into(model.v);
  return model;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
