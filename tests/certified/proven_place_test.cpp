// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/proven_place.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/spans.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::random_matrix;
using testing::Reference;
using testing::span_of;

constexpr std::size_t kVocab = 4000;

/// Heads over one layer, with boxes and without.
struct World {
  explicit World(const LogitTransform& transform = {}) : layer(random_layer(kVocab, 24, 3).with(transform)) {
    for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always})
      heads.push_back(Certified::build(layer, contexts, {.width = 20, .boxes = boxes}));
  }

  SoftmaxLayer layer;
  RowMajorMatrix contexts = clustered_contexts(300, 24, 6, 9);
  std::vector<std::unique_ptr<Certified>> heads;
  Workspace workspace;
};

/// How many places were asked for, told, and inside.
struct Told {
  std::size_t asked = 0;
  std::size_t told = 0;
  std::size_t inside = 0;
};

/// Asks for the places of every seventh token of those that rank first by these logits, −∞ for a forbidden
/// one, and compares what is told with their sum in float64.
void ask_for_places(const TopKSoftmax& head, const std::vector<double>& logits, const Eigen::VectorXf& h,
                    const Nucleus& nucleus, const QueryOptions& options, Told& all) {
  Workspace workspace;
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const double best = logits[order.front()];
  const auto weight = [&](std::size_t id) { return std::exp((logits[id] - best) / nucleus.temperature); };
  double z = 0.0;
  for (std::size_t id = 0; id < logits.size(); ++id) z += weight(id);
  const std::span<const float> computed = head.logits(h, options, workspace);
  const std::vector<float> as_floats(computed.begin(), computed.end());
  double before = 0.0;
  for (std::size_t place = 0; place < 400; before += weight(order[place++])) {
    if (place % 7 != 0) continue;
    const auto id = static_cast<TokenId>(order[place]);
    const ScoredToken token = {as_floats[order[place]], id};
    const std::optional<NucleusPlace> found =
        head.place_in_nucleus(span_of(h), token, nucleus, options, workspace);
    ++all.asked;
    ASSERT_TRUE(found);
    if (found->open) continue;
    ++all.told;
    all.inside += found->inside ? 1U : 0U;
    const bool is_clear = std::abs(before / (nucleus.share * z) - 1.0) > 1e-4;
    ASSERT_TRUE(!is_clear || found->inside == (before < nucleus.share * z))
        << "token " << id << " has " << before / z << " before it";
    ASSERT_NEAR(found->log_z.log_z, best / nucleus.temperature + std::log(z), found->log_z.error + 1e-5);
  }
}

TEST(ProvenPlace, IsThatOfAllLogits) {
  World world;
  for (const auto& head : world.heads) {
    Told all;
    for (const double temperature : {0.4, 1.0, 1.6}) {
      for (const double share : {0.3, 0.7, 0.9}) {
        for (Eigen::Index q = 0; q < 40; ++q) {
          const Eigen::VectorXf h = 2.0F * world.contexts.row(q).transpose();
          ask_for_places(*head, Reference(world.layer, h).logits, h,
                         {.share = share, .temperature = temperature, .error = 0.0}, {}, all);
        }
      }
    }
    EXPECT_GT(all.told, all.asked / 2);
    EXPECT_GT(all.inside, all.told / 10);
    EXPECT_LT(all.inside, all.told / 10 * 9);
  }
}

TEST(ProvenPlace, KnowsMasksBiasesAndTransforms) {
  World world({.scale = 1.5F, .soft_cap = 20.0F});
  TokenMask mask(kVocab);
  for (std::size_t id = 0; id < kVocab; id += 2) mask.allow(static_cast<TokenId>(id));
  const TokenBias bias[] = {{7, 50.0F}, {8, 6.0F}, {10, 5.0F}};
  for (const auto& head : world.heads) {
    Told all;
    for (Eigen::Index q = 0; q < 40; ++q) {
      const Eigen::VectorXf h = world.contexts.row(q);
      std::vector<double> logits = Reference(world.layer, h).logits;
      for (std::size_t id = 1; id < kVocab; id += 2) logits[id] = -HUGE_VAL;
      logits[8] += 6.0;
      logits[10] += 5.0;
      ask_for_places(*head, logits, h, {.share = 0.8, .temperature = 0.7, .error = 0.0},
                     {.allowed = mask, .logit_bias = bias}, all);
    }
    EXPECT_GT(all.told, all.asked / 2);
    EXPECT_GE(all.inside, 40U);
    EXPECT_LT(all.inside, all.told);
  }
}

// Its length is no float, so its bound is infinite.
TEST(ProvenPlace, CountsNoForbiddenRowWithoutABound) {
  constexpr TokenId kLong = 100;
  RowMajorMatrix W = random_matrix(1024, 64, 1);
  W.row(kLong).setZero();
  W(kLong, 0) = W(kLong, 1) = 3e38F;
  W(kLong, 2) = 100.0F;
  RowMajorMatrix contexts = 0.02F * random_matrix(300, 64, 2);
  contexts.leftCols(2).setZero();
  contexts.col(2).setConstant(0.1F);
  TokenMask mask = TokenMask::all(1024);
  mask.forbid(kLong);
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto head = Certified::build(
        SoftmaxLayer::borrow(W), contexts,
        {.prefix = 64, .width = 64, .coordinates = BoundCoordinates::contexts, .boxes = boxes});
    Workspace workspace;
    for (Eigen::Index q = 0; q < 30; ++q) {
      const Eigen::VectorXf h = contexts.row(q);
      const TopK best = head->query(h, {.k = 1, .allowed = mask});
      const std::optional<NucleusPlace> found = head->place_in_nucleus(
          span_of(h), {best.logits[0], best.ids[0]}, {.share = 0.9, .temperature = 0.01, .error = 0.0},
          {.allowed = mask}, workspace);
      ASSERT_TRUE(found);
      EXPECT_TRUE(found->open || found->inside) << q;
      const TopK narrow = head->query(h, {.k = 1, .allowed = mask, .log_z_tolerance = 0.01});
      EXPECT_LE(narrow.log_z_high - narrow.log_z_low, 0.01) << q;
    }
  }
}

// Rows that are all alike, as those of tokens that were never trained, tell too little when they are drawn.
TEST(ProvenPlace, SavesAScanWhereASampleDoesNotTell) {
  RowMajorMatrix W = random_matrix(1, 48, 1, 0.05F).replicate(kVocab, 1);
  W.topRows(300) = random_matrix(300, 48, 2, 0.3F);
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const RowMajorMatrix contexts = random_matrix(340, 48, 3, 1.2F);
  const auto head = Certified::build(layer, contexts.topRows(300), {.prefix = 16, .width = 16});
  Workspace workspace;
  std::size_t told = 0;
  for (Eigen::Index q = 300; q < 340; ++q) {
    const Eigen::VectorXf h = contexts.row(q);
    const TopK best = head->query(h);
    const auto place = [&](double error) {
      return head->place_in_nucleus(span_of(h), {best.logits[0], best.ids[0]},
                                    {.share = 0.9, .temperature = 0.7, .error = error}, {}, workspace);
    };
    if (place(0.0)->open) continue;
    ++told;
    EXPECT_TRUE(place(1e-4)->inside) << q;
    EXPECT_LT(place(1e-4)->log_z.rows_read, kVocab) << q;
  }
  EXPECT_GT(told, 20U);
}

TEST(ProvenPlace, IsLeftOpenWhereNoBoundSaysIt) {
  World world;
  const Eigen::VectorXf h = world.contexts.row(0);
  const TopK best = world.heads[0]->query(h);
  const ScoredToken token = {best.logits[0], best.ids[0]};
  const auto place = [&](const TopKSoftmax& head, double temperature) {
    return head.place_in_nucleus(span_of(h), token, {.temperature = temperature, .error = 0.0}, {},
                                 world.workspace);
  };
  EXPECT_FALSE(place(*world.heads[0], 1.0)->open);
  EXPECT_TRUE(place(*world.heads[0], 1e-30)->open) << "no transform divides by so little";
  EXPECT_TRUE(place(*world.heads[0], 1e30)->open);
  const auto dithered = Certified::build(
      random_layer(kVocab, 80, 3), clustered_contexts(300, 80, 6, 9),
      {.prefix = 8, .int4_width = 32, .width = 80, .boxes = BoundBoxes::never, .failure_probability = 1e-6});
  const Eigen::VectorXf wide = clustered_contexts(300, 80, 6, 9).row(0);
  const TopK answer = dithered->query(wide);
  EXPECT_FALSE(dithered->place_in_nucleus(span_of(wide), {answer.logits[0], answer.ids[0]}, {.error = 0.0},
                                          {}, world.workspace));
}

}  // namespace
}  // namespace topksoftmax
