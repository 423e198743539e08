// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/rivals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;

constexpr std::size_t kVocab = 3000;
constexpr std::size_t kDim = 24;

struct World {
  SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
};

/// A race whose best token is that of an answer.
detail::Race race_of(const TopK& answer, const TopKSoftmax& head, const Eigen::VectorXf& h,
                     const TokenGumbels& gumbels, const QueryOptions& query, Workspace& workspace) {
  return {.head = head,
          .h = {h.data(), kDim},
          .gumbels = gumbels,
          .query = query,
          .workspace = workspace,
          .temperature = 1.0,
          .best = static_cast<double>(answer.logits.front())};
}

/// The rivals of an answer's tokens.
detail::Sought sought_beside(const TopK& answer) {
  return {.lowest = -std::numeric_limits<double>::infinity(),
          .score = 3.0,
          .last = {answer.logits.back(), answer.ids.back()},
          .highest = answer.logits.back(),
          .most = 640};
}

/// The same from all logits, but for those of some tokens.
std::vector<detail::Rival> expected_rivals(const detail::Race& race, const detail::Sought& sought,
                                           std::span<const TokenId> met) {
  std::vector<detail::Rival> rivals;
  Workspace workspace;
  const Eigen::Map<const Eigen::VectorXf> h(race.h.data(), static_cast<Eigen::Index>(race.h.size()));
  const std::span<const float> logits = race.head.logits(h, race.query, workspace);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const bool listed = std::find(met.begin(), met.end(), id) != met.end();
    const bool low = static_cast<double>(logits[i]) < sought.lowest;
    if (listed || low || logits[i] == -std::numeric_limits<float>::infinity()) continue;
    const double score = (static_cast<double>(logits[i]) - race.best) / race.temperature + race.gumbels[id];
    if (score >= sought.score) rivals.push_back({score, {logits[i], id}});
  }
  std::sort(rivals.begin(), rivals.end(),
            [](const detail::Rival& a, const detail::Rival& b) { return a.score > b.score; });
  return rivals;
}

TEST(Rivals, ComeInFallingOrderAndAreAllThereAre) {
  const World world;
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < static_cast<TokenId>(kVocab); id += 2) mask.allow(id);
  const TokenBias bias[] = {{6, 3.0F}, {800, -3.0F}};
  std::vector<std::unique_ptr<TopKSoftmax>> heads;
  heads.push_back(Certified::build(world.layer, world.contexts, {.boxes = BoundBoxes::never}));
  heads.push_back(Certified::build(world.layer, world.contexts, {.boxes = BoundBoxes::always}));
  heads.push_back(std::make_unique<Fused>(world.layer));
  for (const auto& head : heads) {
    detail::Rivals rivals;
    Workspace workspace;
    std::size_t found = 0;
    std::size_t met = 0;
    for (std::uint64_t key = 0; key < 200; ++key) {
      const Eigen::VectorXf h = world.contexts.row(static_cast<Eigen::Index>(key));
      QueryOptions query{.k = 8};
      if (key % 4 == 1) query.allowed = mask;
      if (key % 4 == 2) query.logit_bias = bias;
      TopK answer;
      head->query(h, query, workspace, answer);
      query.same_context = true;
      const TokenGumbels gumbels(key);
      detail::Race race = race_of(answer, *head, h, gumbels, query, workspace);
      detail::Sought sought = sought_beside(answer);
      race.temperature = key % 3 == 0 ? 0.8 : 1.0;
      sought.score = 2.0 + 0.01 * static_cast<double>(key % 50);
      if (key % 5 == 0) sought.lowest = static_cast<double>(answer.logits.back()) - 1.0;
      if (!rivals.find(race, sought)) continue;
      ++met;
      for (const detail::Rival& expected : expected_rivals(race, sought, answer.ids)) {
        const auto next = rivals.next();
        ASSERT_TRUE(next.has_value());
        ASSERT_EQ(next->token.id, expected.token.id);
        ASSERT_EQ(next->token.logit, expected.token.logit);
        ASSERT_DOUBLE_EQ(next->score, expected.score);
        ++found;
      }
      ASSERT_FALSE(rivals.next().has_value());
    }
    EXPECT_GT(met, 100U);
    EXPECT_GT(found, 100U);
  }
}

TEST(Rivals, BoundsSpareManyOfThemTheScoring) {
  const World world;
  const auto certified = Certified::build(world.layer, world.contexts);
  const Fused fused(world.layer);
  std::size_t scored[2] = {0, 0};
  for (const bool with_bounds : {false, true}) {
    const TopKSoftmax& head = with_bounds ? static_cast<const TopKSoftmax&>(*certified) : fused;
    detail::Rivals rivals;
    Workspace workspace;
    for (std::uint64_t key = 0; key < 100; ++key) {
      const Eigen::VectorXf h = world.contexts.row(static_cast<Eigen::Index>(key));
      TopK answer;
      head.query(h, {.k = 8}, workspace, answer);
      const TokenGumbels gumbels(key);
      const QueryOptions query = {.same_context = true};
      const detail::Race race = race_of(answer, head, h, gumbels, query, workspace);
      const detail::Sought sought = sought_beside(answer);
      if (!rivals.find(race, sought)) continue;
      while (rivals.next()) continue;
    }
    scored[with_bounds ? 1 : 0] = rivals.scored();
  }
  EXPECT_LT(4 * scored[1], 3 * scored[0]);
}

TEST(Rivals, AreFoundAmongNamedTokensToo) {
  const World world;
  const auto head = Certified::build(world.layer, world.contexts, {.boxes = BoundBoxes::always});
  detail::Rivals rivals;
  Workspace workspace;
  BoundedTokens named;
  std::size_t found = 0;
  for (std::uint64_t key = 0; key < 200; ++key) {
    const Eigen::VectorXf h = world.contexts.row(static_cast<Eigen::Index>(key));
    const QueryOptions query;
    TopK answer;
    head->query(h, {.k = 20}, workspace, answer);
    const TokenGumbels gumbels(key);
    const detail::Race race = race_of(answer, *head, h, gumbels, query, workspace);
    detail::Sought sought = sought_beside(answer);
    sought.last = {std::numeric_limits<float>::infinity(), 0};
    sought.score = 0.02 * static_cast<double>(key % 50);
    sought.most = kVocab;
    ASSERT_TRUE(head->tokens_reaching({h.data(), kDim}, sought.highest, query, workspace, named));
    if (!rivals.find(race, sought, named)) continue;
    double weight = 0.0;
    for (const float logit : answer.logits) weight += std::exp(static_cast<double>(logit) - race.best);
    ASSERT_GE(rivals.named_weight(), weight * (1.0 - 1e-6));
    double most = 0.0;
    for (const float logit : named.most) most += std::exp(static_cast<double>(logit) - race.best);
    ASSERT_GE(rivals.named_weight(), most);
    ASSERT_LE(rivals.named_weight(), most * 1.01);
    for (const detail::Rival& expected : expected_rivals(race, sought, {})) {
      const auto next = rivals.next();
      ASSERT_TRUE(next.has_value());
      ASSERT_EQ(next->token.id, expected.token.id);
      ASSERT_DOUBLE_EQ(next->score, expected.score);
      ++found;
    }
    ASSERT_FALSE(rivals.next().has_value());
  }
  EXPECT_GT(found, 100U);
}

TEST(Rivals, BoundsThatTellNothingAreRefused) {
  const World world;
  const Fused head(world.layer);
  const Eigen::VectorXf h = world.contexts.row(0);
  Workspace workspace;
  const TopK answer = head.query(h, {.k = 8});
  const TokenGumbels gumbels(1);
  const QueryOptions query;
  const detail::Race race = race_of(answer, head, h, gumbels, query, workspace);
  const detail::Sought sought = sought_beside(answer);
  detail::Rivals rivals;
  EXPECT_TRUE(rivals.find(race, sought, {{5}, {answer.logits.front()}}));
  EXPECT_FALSE(rivals.find(race, sought, {{5}, {answer.logits.front() + 100.0F}}));
  EXPECT_FALSE(rivals.find(race, sought, {{5}, {std::numeric_limits<float>::infinity()}}));
}

}  // namespace
}  // namespace topksoftmax
