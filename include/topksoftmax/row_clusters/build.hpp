// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/row_clusters/row_clusters.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/check_options.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/numeric/finite.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/row_clusters/balanced_kmeans.hpp"
#include "topksoftmax/row_clusters/row_clusters.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/storage/stored_lists.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The share of a build after which only the mass outside is left to learn.
inline double clustered_share(const RowClustersOptions& options) {
  return options.outside_sample > 0 ? 0.6 : 1.0;
}

/// The options with what they leave open chosen; throws Error for unusable ones.
inline RowClustersOptions chosen_row_clusters(RowClustersOptions options, const SoftmaxLayer& layer) {
  options.clusters = std::min(options.clusters.value_or(default_row_clusters(layer.vocab())), layer.vocab());
  options.visited = options.visited.value_or(default_visited(*options.clusters));
  check_options(RowClusters::kind, options);
  return options;
}

/// The most rows that a cluster may hold.
inline std::size_t cluster_capacity(std::size_t vocab, std::size_t clusters, double balance) {
  const double most = std::ceil(balance * static_cast<double>(vocab) / static_cast<double>(clusters));
  if (most >= static_cast<double>(vocab)) return vocab;
  return std::max(static_cast<std::size_t>(most), (vocab + clusters - 1) / clusters);
}

/// A screener by lists of tokens, in the order of their centroids.
inline RowClustersScreener screener_of_lists(const SoftmaxLayer& layer, const RowMajorMatrix& centroids,
                                             std::span<const std::vector<TokenId>> lists,
                                             std::size_t visited) {
  std::vector<std::vector<TokenId>> ascending(lists.begin(), lists.end());
  for (std::vector<TokenId>& list : ascending) std::sort(list.begin(), list.end());
  return {layer, StoredArray<float>::copy({centroids.data(), static_cast<std::size_t>(centroids.size())}),
          StoredLists<TokenId>::copy(ascending), visited};
}

/// The clusters that balanced k-means finds, without those that no row fell into.
inline RowClustersScreener learned_row_clusters(const SoftmaxLayer& layer, const RowClustersOptions& options,
                                                const Executor& executor) {
  const RowMajorMatrix W = layer.weights();
  const std::size_t clusters = *options.clusters;
  const std::vector<std::int32_t> cluster = balanced_kmeans(
      Contexts::of(W),
      {.clusters = clusters,
       .iterations = options.iterations,
       .seed = options.seed,
       .progress = step_of(options.progress, "clustering the rows", 0.0, clustered_share(options))},
      cluster_capacity(layer.vocab(), clusters, options.balance), executor);
  const Eigen::MatrixXd sums =
      cluster_sums(Contexts::of(W), cluster, clusters, [](const Eigen::VectorXd&) { return 1.0; });
  std::vector<std::vector<TokenId>> lists(clusters);
  for (std::size_t token = 0; token < cluster.size(); ++token)
    lists[static_cast<std::size_t>(cluster[token])].push_back(static_cast<TokenId>(token));

  RowMajorMatrix means(sums.rows(), sums.cols());
  std::size_t kept = 0;
  for (std::size_t t = 0; t < clusters; ++t) {
    if (lists[t].empty()) continue;
    means.row(static_cast<Eigen::Index>(kept)) =
        (sums.row(static_cast<Eigen::Index>(t)) / static_cast<double>(lists[t].size())).cast<float>();
    if (kept != t) lists[kept] = std::move(lists[t]);
    ++kept;
  }
  return screener_of_lists(layer, means.topRows(static_cast<Eigen::Index>(kept)),
                           std::span(lists).first(kept), *options.visited);
}

/// Throws Error unless there is a finite centroid for each of the lists, and every token in one of them.
inline void check_given_clusters(const SoftmaxLayer& layer, const ConstRows& centroids,
                                 std::span<const std::vector<TokenId>> lists) {
  const std::string owner = std::string(RowClusters::kind) + ": ";
  if (static_cast<std::size_t>(centroids.cols()) != layer.dim()) {
    throw Error(owner + "centroids have " + std::to_string(centroids.cols()) +
                " values, the layer's dimension is " + std::to_string(layer.dim()));
  }
  if (lists.empty()) throw Error(owner + "there are no clusters; at least 1 is needed");
  if (static_cast<std::size_t>(centroids.rows()) != lists.size()) {
    throw Error(owner + "there are " + std::to_string(centroids.rows()) + " centroids and " +
                std::to_string(lists.size()) + " lists of tokens; they must be as many");
  }
  constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
  std::vector<std::size_t> cluster(layer.vocab(), nowhere);
  for (std::size_t t = 0; t < lists.size(); ++t) {
    const std::string name = "cluster " + std::to_string(t);
    if (!all_finite(centroids.row(static_cast<Eigen::Index>(t)).data(), layer.dim()))
      throw Error(owner + "the centroid of " + name + " has a value that is not finite");
    if (lists[t].empty()) throw Error(owner + name + " has no tokens; at least 1 is needed");
    for (const TokenId id : lists[t]) {
      if (id < 0 || static_cast<std::size_t>(id) >= layer.vocab()) {
        throw Error(owner + name + " has token " + std::to_string(id) +
                    "; ids must be at least 0 and below V = " + std::to_string(layer.vocab()));
      }
      std::size_t& owning = cluster[static_cast<std::size_t>(id)];
      if (owning != nowhere) {
        throw Error(owner + "token " + std::to_string(id) + " is in cluster " + std::to_string(owning) +
                    " and in " + name + "; it must be in one");
      }
      owning = t;
    }
  }
  const auto lost = std::find(cluster.begin(), cluster.end(), nowhere);
  if (lost != cluster.end()) {
    throw Error(owner + "token " + std::to_string(lost - cluster.begin()) +
                " is in no cluster; it must be in one");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> RowClusters::build(SoftmaxLayer layer,
                                                                         const Contexts& contexts,
                                                                         const RowClustersOptions& options,
                                                                         const Executor& executor) {
  const RowClustersOptions all = detail::chosen_row_clusters(options, layer);
  detail::check_contexts_if_any(layer, contexts, RowClusters::kind);
  RowClustersScreener screener = detail::learned_row_clusters(layer, all, executor);
  return detail::with_learned_outside<RowClusters>(
      std::move(layer), std::move(screener), 1, contexts, all.outside_sample, executor,
      detail::learning_outside(all.progress, detail::clustered_share(all)));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> RowClusters::build(SoftmaxLayer layer,
                                                                         const ConstRows& contexts,
                                                                         const RowClustersOptions& options,
                                                                         const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> RowClusters::build(SoftmaxLayer layer,
                                                                         const RowClustersOptions& options,
                                                                         const Executor& executor) {
  return build(std::move(layer), Contexts(), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> RowClusters::from_centroids(
    SoftmaxLayer layer, const ConstRows& centroids, std::span<const std::vector<TokenId>> lists,
    const GivenClustersOptions& options, const Contexts& contexts, const Executor& executor) {
  detail::check_given_clusters(layer, centroids, lists);
  detail::check_contexts_if_any(layer, contexts, RowClusters::kind);
  const std::size_t visited = options.visited.value_or(detail::default_visited(lists.size()));
  check_options(RowClusters::kind, RowClustersOptions{.visited = visited});
  RowClustersScreener screener = detail::screener_of_lists(layer, centroids, lists, visited);
  return detail::with_learned_outside<RowClusters>(std::move(layer), std::move(screener), 1, contexts,
                                                   options.outside_sample, executor,
                                                   detail::learning_outside(options.progress, 0.0));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> RowClusters::from_centroids(
    SoftmaxLayer layer, const ConstRows& centroids, std::span<const TokenId> tokens,
    const GivenClustersOptions& options, const Contexts& contexts, const Executor& executor) {
  const auto clusters = static_cast<std::size_t>(centroids.rows());
  if (clusters == 0 || tokens.size() % clusters != 0) {
    throw Error("row-clusters: " + std::to_string(tokens.size()) + " tokens make no " +
                std::to_string(clusters) + " clusters of one size; give a list for each");
  }
  const std::size_t size = tokens.size() / clusters;
  std::vector<std::vector<TokenId>> lists;
  for (std::size_t t = 0; t < clusters; ++t) {
    const std::span<const TokenId> list = tokens.subspan(t * size, size);
    lists.emplace_back(list.begin(), list.end());
  }
  return from_centroids(std::move(layer), centroids, lists, options, contexts, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
