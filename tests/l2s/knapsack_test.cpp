// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/knapsack.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace topksoftmax {
namespace {

Labels labels_of(std::vector<TokenId> ids, std::size_t depth) {
  Labels labels;
  labels.weights.assign(ids.size(), 1.0F);
  labels.ids = std::move(ids);
  labels.depth = labels.top = depth;
  return labels;
}

TEST(Knapsack, TakesTheMostFrequentLabelsOfEachClusterFirst) {
  // Cluster 0 has three contexts, cluster 1 one.
  const Labels labels = labels_of({1, 2, 1, 3, 1, 2, 7, 8}, 2);
  const std::vector<std::int32_t> assignment = {0, 0, 0, 1};
  // Ratios: (1,7) and (1,8) 1, (0,1) 1, (0,2) 2/3, (0,3) 1/3; weights 3/4 in cluster 0 and 1/4 in 1.
  const CandidateSets tight = choose_candidates(assignment, labels, 2, {.budget = 1.25});
  EXPECT_EQ(std::vector<TokenId>(tight[0].begin(), tight[0].end()), (std::vector<TokenId>{1}));
  EXPECT_EQ(std::vector<TokenId>(tight[1].begin(), tight[1].end()), (std::vector<TokenId>{7, 8}));
  const CandidateSets loose = choose_candidates(assignment, labels, 2, {.budget = 100});
  EXPECT_EQ(loose[0].size(), 3U);
  EXPECT_EQ(screening_loss(assignment, labels, loose, 3e-4).missed, 0.0);
}

std::vector<TokenId> set_of(const CandidateSets& sets, std::size_t t) {
  return {sets[t].begin(), sets[t].end()};
}

TEST(Knapsack, ValuePerWeightDecidesNotValue) {
  // (0, 1) has the value 2 at the weight 3/4, (1, 7) the value 1 at 1/4, (0, 2) the value 1 at 3/4.
  const Labels labels = labels_of({1, 1, 2, 7}, 1);
  const std::vector<std::int32_t> assignment = {0, 0, 0, 1};
  const CandidateSets sets = choose_candidates(assignment, labels, 2, {.budget = 0.8, .lambda = 1e-6});
  EXPECT_EQ(set_of(sets, 0), std::vector<TokenId>());
  EXPECT_EQ(set_of(sets, 1), std::vector<TokenId>{7});
}

TEST(Knapsack, LighterItemsAreTakenBehindOneThatDoesNotFit) {
  // (0, 1) at 1 per context and (0, 2) at 2/3 weigh 3/5 each, (1, 7) at 1/2 weighs 2/5.
  const Labels labels = labels_of({1, 2, 1, 2, 1, 3, 7, 8, 9, 10}, 2);
  const std::vector<std::int32_t> assignment = {0, 0, 0, 1, 1};
  const CandidateSets sets = choose_candidates(assignment, labels, 2, {.budget = 1.1, .lambda = 1e-6});
  EXPECT_EQ(set_of(sets, 0), std::vector<TokenId>{1});
  EXPECT_EQ(set_of(sets, 1), std::vector<TokenId>{7});
}

TEST(Knapsack, FillsABudgetToTheLastToken) {
  // Three clusters of one context, each with labels of its own: a token weighs 1/3, which is rounded.
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < 60; ++id) ids.push_back(id);
  const std::vector<std::int32_t> assignment = {0, 1, 2};
  const CandidateSets sets = choose_candidates(assignment, labels_of(ids, 20), 3, {.budget = 11.0});
  EXPECT_EQ(sets.values().size(), 33U);
}

TEST(Knapsack, TokensWhosePriceExceedsTheirValueStayOut) {
  const Labels labels = labels_of({1, 1, 1, 2}, 1);
  const std::vector<std::int32_t> assignment = {0, 0, 0, 0};
  const CandidateSets sets = choose_candidates(assignment, labels, 1, {.budget = 100, .lambda = 0.5});
  EXPECT_EQ(sets[0].size(), 1U) << "token 2 saves 1.5 and costs 2";
}

TEST(Knapsack, KeepsTheBudgetAndItsLossIsEquationSeven) {
  std::mt19937 engine(4);
  std::vector<TokenId> ids;
  std::vector<std::int32_t> assignment;
  for (int i = 0; i < 500; ++i) {
    const int cluster = static_cast<int>(engine() % 7);
    assignment.push_back(cluster);
    for (int n = 0; n < 3; ++n)
      ids.push_back(n * 100 + static_cast<TokenId>((engine() % 9) * (engine() % 9)) + cluster);
  }
  const Labels labels = labels_of(ids, 3);
  double previous = 1e9;
  for (const double budget : {1.0, 3.0, 10.0, 30.0, 1000.0}) {
    const CandidateSets sets = choose_candidates(assignment, labels, 7, {.budget = budget, .lambda = 1e-3});
    const ScreeningLoss loss = screening_loss(assignment, labels, sets, 1e-3);
    EXPECT_LE(loss.set_size, budget);
    double objective = 0.0;
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      for (TokenId s = 0; s < 400; ++s) {
        const auto set = sets[static_cast<std::size_t>(assignment[i])];
        const double c = std::count(set.begin(), set.end(), s) != 0 ? 1.0 : 0.0;
        const auto y = labels.of(i);
        objective += std::count(y.begin(), y.end(), s) != 0 ? (1.0 - c) * (1.0 - c) : 1e-3 * c * c;
      }
    }
    EXPECT_NEAR(loss.objective, objective / 500.0, 1e-9);
    EXPECT_LE(loss.objective, previous);
    previous = loss.objective;
  }
}

TEST(Knapsack, EmptyClustersGetEmptySets) {
  for (const double prior : {0.0, 1.0}) {
    const CandidateSets sets =
        choose_candidates(std::vector<std::int32_t>{2}, labels_of({5}, 1), 4, {.budget = 10, .prior = prior});
    EXPECT_EQ(sets.size(), 4U);
    EXPECT_TRUE(sets[0].empty());
    EXPECT_EQ(sets[2].size(), 1U);
  }
}

TEST(Knapsack, APriorAddsWhatIsCommonInAllClusters) {
  // Token 9 is a label of every context but that of cluster 2, tokens 1 to 3 of one each.
  const Labels labels = labels_of({9, 1, 9, 2, 9, 1, 3, 4}, 2);
  const std::vector<std::int32_t> assignment = {0, 0, 1, 2};
  const CandidateSets seen = choose_candidates(assignment, labels, 3, {.budget = 100});
  EXPECT_EQ(set_of(seen, 2), (std::vector<TokenId>{3, 4}));
  const CandidateSets all = choose_candidates(assignment, labels, 3, {.budget = 100, .prior = 1.0});
  for (std::size_t t = 0; t < 3; ++t) EXPECT_EQ(set_of(all, t), (std::vector<TokenId>{1, 2, 3, 4, 9}));
  // In cluster 2 token 9 has the value 3/4, tokens 1 and 2 have 1/2 and 1/4, less the price of 0.6 for all.
  const CandidateSets dear =
      choose_candidates(assignment, labels, 3, {.budget = 100, .lambda = 0.6, .prior = 1.0});
  EXPECT_EQ(set_of(dear, 2), (std::vector<TokenId>{1, 3, 4, 9}));
}

TEST(Knapsack, APriorCountsAsContextsOfEveryCluster) {
  std::mt19937 engine(5);
  std::vector<TokenId> ids;
  std::vector<std::int32_t> assignment;
  for (int i = 0; i < 200; ++i) {
    assignment.push_back(static_cast<int>(engine() % 6));
    for (int n = 0; n < 3; ++n) ids.push_back(n * 40 + static_cast<TokenId>((engine() % 6) * (engine() % 6)));
  }
  const Labels labels = labels_of(ids, 3);
  constexpr double kLambda = 0.01;
  constexpr double kPrior = 2.0;
  const CandidateSets sets =
      choose_candidates(assignment, labels, 6, {.budget = 1000, .lambda = kLambda, .prior = kPrior});
  for (std::size_t t = 0; t < 6; ++t) {
    std::vector<TokenId> expected;
    const auto members = static_cast<double>(std::ranges::count(assignment, static_cast<std::int32_t>(t)));
    for (TokenId s = 0; s < 120; ++s) {
      double here = 0.0;
      double everywhere = 0.0;
      for (std::size_t i = 0; i < assignment.size(); ++i) {
        const auto y = labels.of(i);
        const auto count = static_cast<double>(std::count(y.begin(), y.end(), s));
        everywhere += count;
        if (assignment[i] == static_cast<std::int32_t>(t)) here += count;
      }
      const double value = (here + kPrior * everywhere / 200.0) * (1.0 + kLambda) - kLambda * members;
      if (value > 0.0) expected.push_back(s);
    }
    EXPECT_EQ(set_of(sets, t), expected) << t;
  }
}

}  // namespace
}  // namespace topksoftmax
