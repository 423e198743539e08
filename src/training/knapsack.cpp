// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/training/knapsack.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace topksoftmax {
namespace {

struct Item {
  std::int32_t cluster;
  TokenId token;
  double ratio;  // value per weight
  double weight;
};

}  // namespace

CandidateSets choose_candidates(std::span<const std::int32_t> assignment, const Labels& labels,
                                std::size_t clusters, const KnapsackOptions& options) {
  std::vector<std::size_t> members(clusters, 0);
  std::vector<std::unordered_map<TokenId, double>> counts(clusters);
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    const auto t = static_cast<std::size_t>(assignment[i]);
    ++members[t];
    const std::span<const TokenId> ids = labels.of(i);
    const std::span<const float> weights = labels.weights_of(i);
    for (std::size_t n = 0; n < ids.size(); ++n) {
      if (weights[n] > 0.0F) counts[t][ids[n]] += static_cast<double>(weights[n]);
    }
  }

  std::vector<Item> items;
  const auto total = static_cast<double>(assignment.size());
  for (std::size_t t = 0; t < clusters; ++t) {
    const auto here = static_cast<double>(members[t]);
    for (const auto& [token, count] : counts[t]) {
      const double value = count * (1.0 + options.lambda) - options.lambda * here;
      if (value > 0.0) items.push_back({static_cast<std::int32_t>(t), token, value / here, here / total});
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    if (a.ratio != b.ratio) return a.ratio > b.ratio;
    return a.cluster != b.cluster ? a.cluster < b.cluster : a.token < b.token;
  });

  std::vector<std::vector<TokenId>> chosen(clusters);
  double used = 0.0;
  for (const Item& item : items) {
    if (used + item.weight > options.budget) continue;
    used += item.weight;
    chosen[static_cast<std::size_t>(item.cluster)].push_back(item.token);
  }
  CandidateSets sets;
  sets.offsets.push_back(0);
  for (std::vector<TokenId>& ids : chosen) {
    std::sort(ids.begin(), ids.end());
    sets.ids.insert(sets.ids.end(), ids.begin(), ids.end());
    sets.offsets.push_back(sets.ids.size());
  }
  return sets;
}

ScreeningLoss screening_loss(std::span<const std::int32_t> assignment, const Labels& labels,
                             const CandidateSets& sets, double lambda) {
  ScreeningLoss loss;
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    const std::span<const TokenId> set = sets.of(static_cast<std::size_t>(assignment[i]));
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

}  // namespace topksoftmax
