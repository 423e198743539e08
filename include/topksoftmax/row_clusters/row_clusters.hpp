// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/learning/outside_option.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/numeric/largest.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/storage/stored_lists.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What RowClustersScreener works in.
struct RowClustersScratch {
  ScratchBuffer scores;  ///< of the clusters
  ScratchBuffer maxima;
  ScratchBuffer visited;
  ScratchBuffer ids;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of RowClusters. What builds throws Error for values out of their ranges.
struct RowClustersOptions {
  /// C, the clusters, at least 1; V/128, rounded up, unless given. Fewer where there are fewer rows, or where
  /// no row falls into one.
  std::optional<std::size_t> clusters = std::nullopt;
  /// n, clusters whose rows are scored, at least 1; C/8 unless given. A query's `effort` overrides it.
  std::optional<std::size_t> visited = std::nullopt;
  /// How many rows a cluster may hold, over the mean of V/C: at least 1. 1 makes all clusters of one size, as
  /// in FlashHead; then rows that are like many others are torn from them, and precision suffers.
  double balance = 1.5;
  /// Of the spherical k-means that the clusters begin with, and of the balanced one that follows; at most.
  std::size_t iterations = 15;
  std::uint64_t seed = 1;  ///< of the rows that the clusters begin at
  /// Contexts, evenly spaced ones, that the mass outside of the clusters visited is learned from
  /// (Normalizer::learned); 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 5000;

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("clusters", options.clusters, "C, the clusters; V/128 if null", at_least(1));
    visit("visited", options.visited, "n, clusters whose rows are scored; C/8 if null", at_least(1));
    visit("balance", options.balance, "rows that a cluster may hold, over the mean of V/C", at_least(1));
    visit("iterations", options.iterations, "of the spherical k-means, and of the balanced one after it");
    visit("seed", options.seed, "of the random numbers");
    detail::visit_outside_sample(options, visit);
  }
};

/// What RowClusters takes where the clusters are given.
struct GivenClustersOptions {
  /// As RowClustersOptions has them.
  std::optional<std::size_t> visited = std::nullopt;
  /// Contexts, evenly spaced ones, that the mass outside of the rows scored is learned from
  /// (Normalizer::learned); 0: it is not.
  std::size_t outside_sample = 5000;
  /// Told how far that is; may be empty.
  TrainingProgress progress = {};
};

/// Screens by clusters of rows: candidates are the tokens of the clusters with the best centroids.
class TOPKSOFTMAX_EXPORT RowClustersScreener {
 public:
  /// centroids [C×d]; the tokens of each cluster, at least one, and every one of the V once. Cost: V
  /// comparisons of biases.
  RowClustersScreener(const SoftmaxLayer& layer, const StoredArray<float>& centroids,
                      StoredLists<TokenId> tokens, std::size_t visited);

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "row-clusters"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

  /// Number of clusters, C.
  std::size_t clusters() const { return centroids_.count(); }
  /// n, where a query gives no effort.
  std::size_t visited() const { return visited_; }
  /// The tokens of a cluster below clusters().
  std::span<const TokenId> tokens(std::size_t cluster) const { return tokens_[cluster]; }

 private:
  /// How many tokens these clusters have.
  std::size_t tokens_of(std::span<const TokenId> clusters) const;

  detail::StoredRows centroids_;  ///< [C×d], with the largest bias of each cluster if the layer has any
  StoredLists<TokenId> tokens_;   ///< of each cluster
  std::size_t visited_;
};

/// Clusters of rows, of which each query scores those whose centroids are nearest to it: "FlashHead:
/// Efficient Drop-In Replacement for the Classification Head in Language Model Inference" (Tranheden et al.,
/// arXiv 2603.14591, 2026), and the ordered embedder of Gemma 4's draft models, which brings clusters along.
///
/// A cluster's score is centroid·h, plus the largest bias of its tokens. Clusters are learned by the rows'
/// directions, as in FlashHead, but a learned centroid is the mean of its rows with their lengths: its
/// product with h is then the mean of theirs, and long rows weigh in it as they do among the logits. Given
/// centroids are taken as they are.
///
/// log Z is over the candidates; where contexts have taught the mass of all other tokens, it counts that too
/// (Normalizer::learned), unless a query forbids more than a few tokens (OutsideMass) or has another effort,
/// or its k is more than the clusters visited hold.
///
/// Effort: n, the clusters visited; from C on every token is scored. Where they hold fewer than k tokens,
/// twice as many are visited, and so on.
///
/// Cost of a query: C·d floats of centroids, and balance·V·n/C·d weights at most: tokens that are frequent
/// in the text lie in small clusters. The rows are read where the layer has them, no copy is
/// kept: copies that lie cluster by cluster were a fifth quicker for rows of 800 bytes that the processor's
/// caches hold, and a seventh slower for more rows of 1,024. Index: 4·C·(d + 3) + 4·V bytes.
class TOPKSOFTMAX_EXPORT RowClusters final : public ScreenedSoftmax<RowClustersScreener> {
 public:
  // Defined in row_clusters/build.hpp:

  /// Learns the clusters from the rows by balanced spherical k-means, the same ones for any number of threads
  /// of the executor (on processors of one instruction set, which decides how products are rounded). Cost:
  /// 2·iterations·V·C·d multiply-adds, and V·(4·d + 144) bytes of memory. Where rows find no room in the 16
  /// clusters that they are nearest to, their products are made again: at worst for all of them, C/16 times
  /// an iteration. Throws Error for unusable options.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> build(
      SoftmaxLayer layer, const RowClustersOptions& options = {},
      const Executor& executor = default_executor());

  /// The same with the mass outside of the clusters learned from contexts [N×d]. Cost: also min(N,
  /// outside_sample)·V·d multiply-adds and min(N, outside_sample)·V exponentials. Throws Error also for
  /// contexts of another dimension or that are not finite.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> build(
      SoftmaxLayer layer, const ConstRows& contexts, const RowClustersOptions& options = {},
      const Executor& executor = default_executor());

  /// The same for contexts in plain memory; no contexts: the first form.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> build(
      SoftmaxLayer layer, const Contexts& contexts, const RowClustersOptions& options,
      const Executor& executor = default_executor());

  /// Clusters of equal size that a model brings along: centroids [C×d], and all V tokens in their order,
  /// those of the first cluster first, V/C of each. Contexts serve the mass outside alone. Throws Error for
  /// centroids of another dimension or that are not finite, and unless every token is in one cluster.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> from_centroids(
      SoftmaxLayer layer, const ConstRows& centroids, std::span<const TokenId> tokens,
      const GivenClustersOptions& options = {}, const Contexts& contexts = {},
      const Executor& executor = default_executor());

  /// The same for clusters of any size, at least one token each, listed in the order of their centroids.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<RowClusters> from_centroids(
      SoftmaxLayer layer, const ConstRows& centroids, std::span<const std::vector<TokenId>> lists,
      const GivenClustersOptions& options = {}, const Contexts& contexts = {},
      const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "row-clusters";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<RowClusters> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// C for a layer, unless it is given.
inline std::size_t default_row_clusters(std::size_t vocab) {
  constexpr std::size_t kRowsOfOne = 128;
  return (vocab + kRowsOfOne - 1) / kRowsOfOne;
}

/// n of so many clusters, unless it is given.
inline std::size_t default_visited(std::size_t clusters) {
  constexpr std::size_t kShare = 8;
  return std::max<std::size_t>(clusters / kShare, 1);
}

/// The largest bias of each cluster's tokens; none where the layer has none.
inline StoredArray<float> largest_biases(const SoftmaxLayer& layer, const StoredLists<TokenId>& tokens) {
  if (!layer.has_bias()) return {};
  std::vector<float> largest(tokens.size(), std::numeric_limits<float>::lowest());
  for (std::size_t t = 0; t < largest.size(); ++t) {
    for (const TokenId id : tokens[t]) largest[t] = std::max(largest[t], layer.rows().bias[id]);
  }
  return StoredArray<float>::own(std::move(largest));
}

/// The `wanted` < count clusters with the largest scores, of equals the lower ones, ascending.
inline std::span<const TokenId> best_clusters(const float* scores, std::size_t count, std::size_t wanted,
                                              RowClustersScratch& scratch) {
  auto* const maxima = scratch.maxima.get<float>(kernels::maxima_room(count));
  auto* const clusters = scratch.visited.get<TokenId>(count + kernels::kSlack);
  std::size_t found = kernels::promising(scores, count, wanted, maxima, clusters);
  if (found < wanted) {
    std::iota(clusters, clusters + count, 0);
    found = count;
  }
  put_largest_first(clusters, found, wanted, scores);
  std::sort(clusters, clusters + wanted);
  return {clusters, wanted};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline RowClustersScreener::RowClustersScreener(const SoftmaxLayer& layer,
                                                const StoredArray<float>& centroids,
                                                StoredLists<TokenId> tokens, std::size_t visited)
    : centroids_(centroids, layer.dim(), detail::largest_biases(layer, tokens)),
      tokens_(std::move(tokens)),
      visited_(visited) {}

inline Candidates RowClustersScreener::screen(const Query& query, Workspace& workspace) const {
  std::size_t wanted = query.effort == 0 ? visited_ : query.effort;
  if (wanted >= clusters()) return Candidates::all();

  detail::RowClustersScratch& scratch = workspace.scratch<detail::RowClustersScratch>();
  const kernels::Rows rows = centroids_.rows();
  auto* const scores = scratch.scores.get<float>(rows.count);
  scan(workspace, rows, 0, rows.count, query.h, scores);
  Candidates candidates;
  candidates.screened = rows.count;
  candidates.bytes_read = rows.bytes(rows.count);
  std::span<const TokenId> visited = detail::best_clusters(scores, rows.count, wanted, scratch);
  std::size_t room = tokens_of(visited);
  while (room < query.k) {
    wanted *= 2;
    candidates.everything = wanted >= clusters();
    if (candidates.everything) return candidates;
    visited = detail::best_clusters(scores, rows.count, wanted, scratch);
    room = tokens_of(visited);
  }

  auto* const ids = scratch.ids.get<TokenId>(room);
  TokenId* end = ids;
  for (const TokenId cluster : visited) {
    const std::span<const TokenId> of_cluster = tokens(static_cast<std::size_t>(cluster));
    end = std::copy(of_cluster.begin(), of_cluster.end(), end);
  }
  candidates.ids = {ids, room};
  if (wanted == visited_) candidates.group = 0;
  return candidates;
}

inline std::size_t RowClustersScreener::tokens_of(std::span<const TokenId> clusters) const {
  std::size_t count = 0;
  for (const TokenId cluster : clusters) count += tokens(static_cast<std::size_t>(cluster)).size();
  return count;
}

inline std::size_t RowClustersScreener::index_bytes() const {
  return centroids_.rows().bytes(clusters()) + tokens_.bytes();
}

inline void RowClustersScreener::save(IndexWriter& out) const {
  out.kind(RowClusters::kind);
  out.option("visited", visited_);
  out.array("centroids", {clusters(), centroids_.dim()}, centroids_.weights());
  out.array("tokens", {tokens_.values().size()}, tokens_.values());
  out.array("starts", {tokens_.starts().size()}, tokens_.starts());
}

inline std::unique_ptr<RowClusters> RowClusters::load(const IndexReader& in) {
  RowClustersOptions options;
  in.option("visited", options.visited);
  in.check([&] { check_options(kind, options); });
  const StoredArray<float> centroids = in.floats("centroids", {IndexReader::any, in.dim()});
  const std::size_t clusters = centroids.size() / in.dim();
  if (clusters == 0) throw in.damaged("centroids", "has no cluster");
  const StoredArray<TokenId> ids = in.distinct_tokens("tokens", {in.vocab()});
  const StoredLists<TokenId> tokens(in.offsets("starts", {clusters + 1}, in.vocab()), ids);
  for (std::size_t t = 0; t < clusters; ++t) {
    if (tokens[t].empty())
      throw in.damaged("starts", "leaves cluster " + std::to_string(t) + " without tokens");
  }
  return std::unique_ptr<RowClusters>(
      new RowClusters(in.layer(), RowClustersScreener(in.layer(), centroids, tokens, *options.visited),
                      OutsideMass::load(in, 1)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
