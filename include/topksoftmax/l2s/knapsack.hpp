// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/l2s/candidate_sets.hpp"
#include "topksoftmax/l2s/model.hpp"
#include "topksoftmax/learning/labels.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of the choice of candidate sets.
struct KnapsackOptions {
  double budget = 300.0;  ///< B, the mean set size that a context may meet
  double lambda = 3e-4;   ///< λ of Eq. 6: the price of a token that is not a label
  /// So many contexts count in every cluster that has any, besides its own, each with all labels as often as
  /// contexts have them in the mean: what a few contexts have not shown is judged by how common it is. 0: the
  /// paper's form.
  double prior = 0.0;
};

/// Chooses the candidate sets by L2S's greedy knapsack (§3, "Optimization"): item (t, s) adds token s to
/// C(t). Its weight is the share of contexts in cluster t, N_t/N, by which it raises the mean set size L̄; its
/// value what it takes off the objective of Eq. 7, n_ts·(1 + λ) − λ·N_t, n_ts being the contexts of t whose
/// label s is (and prior·n_s/N, n_s being those of all clusters). Items are added by falling value per
/// weight, ties to the lower cluster and then token; those without value never. One that would raise L̄ above
/// B is passed over, and lighter ones behind it are still tried, where the paper stops.
///
/// `assignment` [N] is each context's cluster. Cost: O(N·depth + items·log items); with a prior, items are
/// also the tokens of every cluster whose share of all contexts is above λ·N_t/prior.
CandidateSets choose_candidates(std::span<const std::int32_t> assignment, const Labels& labels,
                                std::size_t clusters, const KnapsackOptions& options);

/// Eq. 7 for given assignments and sets.
ScreeningLoss screening_loss(std::span<const std::int32_t> assignment, const Labels& labels,
                             const CandidateSets& sets, double lambda);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

struct Item {
  std::int32_t cluster;
  TokenId token;
  double ratio;   // value per weight
  double weight;  // N_t: whole numbers are summed without rounding
};

/// How often tokens are labels, each as its weight says.
using LabelCounts = std::unordered_map<TokenId, double>;

/// The contexts of a cluster.
struct ClusterLabels {
  std::size_t members = 0;
  LabelCounts counts = {};
};

/// The share of all contexts that each label is of, times the prior; nothing without one.
inline LabelCounts prior_counts(std::span<const ClusterLabels> clusters, std::size_t contexts, double prior) {
  LabelCounts sums;
  if (prior == 0.0) return sums;
  for (const ClusterLabels& cluster : clusters) {
    for (const auto& [token, count] : cluster.counts) sums[token] += count;
  }
  for (auto& [token, sum] : sums) sum *= prior / static_cast<double>(contexts);
  return sums;
}

/// All items of value.
inline std::vector<Item> knapsack_items(std::span<const ClusterLabels> clusters, std::size_t contexts,
                                        const KnapsackOptions& options) {
  const LabelCounts prior = prior_counts(clusters, contexts, options.prior);
  std::vector<std::pair<double, TokenId>> common;
  for (const auto& [token, count] : prior) common.emplace_back(count, token);
  std::sort(common.begin(), common.end(), std::greater<>());

  std::vector<Item> items;
  for (std::size_t t = 0; t < clusters.size(); ++t) {
    if (clusters[t].members == 0) continue;
    const auto here = static_cast<double>(clusters[t].members);
    const auto offer = [&](TokenId token, double count) {
      const double value = count * (1.0 + options.lambda) - options.lambda * here;
      if (value > 0.0) items.push_back({static_cast<std::int32_t>(t), token, value / here, here});
      return value > 0.0;
    };
    const LabelCounts& seen = clusters[t].counts;
    for (const auto& [token, count] : seen) offer(token, count + (prior.empty() ? 0.0 : prior.at(token)));
    for (const auto& [count, token] : common) {
      if (!seen.contains(token) && !offer(token, count)) break;  // those behind it are no commoner
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    if (a.ratio != b.ratio) return a.ratio > b.ratio;
    return a.cluster != b.cluster ? a.cluster < b.cluster : a.token < b.token;
  });
  return items;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline CandidateSets choose_candidates(std::span<const std::int32_t> assignment, const Labels& labels,
                                       std::size_t clusters, const KnapsackOptions& options) {
  std::vector<detail::ClusterLabels> by_cluster(clusters);
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    detail::ClusterLabels& cluster = by_cluster[static_cast<std::size_t>(assignment[i])];
    ++cluster.members;
    const std::span<const TokenId> ids = labels.of(i);
    const std::span<const float> weights = labels.weights_of(i);
    for (std::size_t n = 0; n < ids.size(); ++n) {
      if (weights[n] > 0.0F) cluster.counts[ids[n]] += static_cast<double>(weights[n]);
    }
  }

  std::vector<std::vector<TokenId>> chosen(clusters);
  const double budget = options.budget * static_cast<double>(assignment.size());
  double used = 0.0;
  for (const detail::Item& item : detail::knapsack_items(by_cluster, assignment.size(), options)) {
    if (used + item.weight > budget) continue;
    used += item.weight;
    chosen[static_cast<std::size_t>(item.cluster)].push_back(item.token);
  }
  for (std::vector<TokenId>& ids : chosen) std::sort(ids.begin(), ids.end());
  return CandidateSets::copy(chosen);
}

inline ScreeningLoss screening_loss(std::span<const std::int32_t> assignment, const Labels& labels,
                                    const CandidateSets& sets, double lambda) {
  ScreeningLoss loss;
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    const std::span<const TokenId> set = sets[static_cast<std::size_t>(assignment[i])];
    const std::span<const TokenId> ids = labels.of(i);
    const std::span<const float> weights = labels.weights_of(i);
    double missed = 0.0;
    double found = 0.0;
    for (std::size_t n = 0; n < ids.size(); ++n) {
      const auto weight = static_cast<double>(weights[n]);
      if (std::binary_search(set.begin(), set.end(), ids[n])) {
        found += weight;
      } else {
        missed += weight;
        if (n < labels.top) loss.missed += 1.0;
      }
    }
    loss.set_size += static_cast<double>(set.size());
    loss.objective += missed + lambda * (static_cast<double>(set.size()) - found);
  }
  if (!assignment.empty()) {
    const auto n = static_cast<double>(assignment.size());
    loss.missed /= n;
    loss.set_size /= n;
    loss.objective /= n;
  }
  return loss;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
