// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/baselines/lsh_mips.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "support/screened.hpp"
#include "topksoftmax/baselines/build_lsh_mips.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::screened;

constexpr Eigen::Index kVocab = 64;
constexpr Eigen::Index kDim = 8;

std::set<TokenId> screen(const LshMips& head, const Eigen::VectorXf& h, std::size_t probes) {
  const std::vector<TokenId> ids = screened(head, h, {.effort = probes});
  return {ids.begin(), ids.end()};
}

TEST(LshMips, TokensCollideAsOftenAsTheirAngleSays) {
  // A sign is shared with probability 1 − θ/π (Neyshabur and Srebro, §3), θ the angle of the lifted vectors.
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const Eigen::MatrixXd W = layer.weights().cast<double>();
  const Eigen::VectorXd b = layer.biases().cast<double>();
  const Eigen::VectorXf h = random_vector(kDim, 2);
  const double longest = (W.rowwise().squaredNorm() + b.cwiseAbs2()).cwiseSqrt().maxCoeff();
  constexpr std::uint64_t trials = 1500;
  std::vector<double> collisions(kVocab, 0.0);
  for (std::uint64_t seed = 1; seed <= trials; ++seed) {
    const auto head = LshMips::build(layer, {.tables = 1, .bits = 1, .seed = seed});
    for (const TokenId id : screen(*head, h, 1)) collisions[static_cast<std::size_t>(id)] += 1.0;
  }
  const double length = std::sqrt(h.cast<double>().squaredNorm() + 1.0);
  for (Eigen::Index token = 0; token < kVocab; ++token) {
    const double cosine = (W.row(token).dot(h.cast<double>()) + b[token]) / (longest * length);
    const double expected = 1.0 - std::acos(cosine) / std::numbers::pi;
    const double deviation = std::sqrt(expected * (1.0 - expected) / static_cast<double>(trials));
    EXPECT_NEAR(collisions[static_cast<std::size_t>(token)] / static_cast<double>(trials), expected,
                5.0 * deviation);
  }
}

TEST(LshMips, EachProbeIsAnotherBucket) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const auto head = LshMips::build(layer, {.tables = 1, .bits = 5});
  const Eigen::VectorXf h = random_vector(kDim, 2);
  std::set<TokenId> before;
  for (std::size_t probes = 1; probes < 32; ++probes) {
    const std::set<TokenId> found = screen(*head, h, probes);
    EXPECT_TRUE(std::includes(found.begin(), found.end(), before.begin(), before.end()));
    before = found;
  }
  // All buckets but one: the tokens missing are those of the least likely code, if it has any.
  EXPECT_GE(before.size(), kVocab * 3U / 4U);
}

TEST(LshMips, ProbesGoToTheCodesThatCostLeast) {
  // A code costs what the context's projections, in float64, would have to move to have it.
  constexpr std::size_t bits = 5;
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const auto index = std::make_shared<const detail::LshMipsIndex>(
      layer, LshMipsOptions{.tables = 1, .bits = bits}, SerialExecutor());
  const LshMipsScreener screener(index);
  const kernels::Rows directions = index->projections();
  for (unsigned i = 0; i < 20; ++i) {
    const Eigen::VectorXf h = random_vector(kDim, 20 + i);
    std::vector<double> projections;
    for (std::size_t bit = 0; bit < bits; ++bit) {
      const Eigen::Map<const Eigen::VectorXf> direction(
          static_cast<const float*>(directions.data) + bit * kDim, kDim);
      projections.push_back(direction.cast<double>().dot(h.cast<double>()) +
                            static_cast<double>(directions.bias[bit]));
    }
    std::vector<std::pair<double, std::uint32_t>> costs;
    for (std::uint32_t code = 0; code < 1U << bits; ++code) {
      double cost = 0.0;
      for (std::size_t bit = 0; bit < bits; ++bit) {
        const bool is_set = (code >> bit & 1U) != 0;
        if (is_set != (projections[bit] > 0.0)) cost += std::abs(projections[bit]);
      }
      costs.emplace_back(cost, code);
    }
    std::sort(costs.begin(), costs.end());
    std::vector<TokenId> expected;
    for (std::size_t probes = 1; probes < costs.size(); ++probes) {
      const std::span<const TokenId> bucket = index->bucket(0, costs[probes - 1].second);
      expected.insert(expected.end(), bucket.begin(), bucket.end());
      Workspace workspace;
      Query query;
      query.h = h.data();
      query.effort = probes;
      const Candidates found = screener.screen(query, workspace);
      EXPECT_EQ(std::vector<TokenId>(found.ids.begin(), found.ids.end()), expected) << probes;
    }
  }
}

TEST(LshMips, WithoutBiasesTheLengthOfAContextMakesNoDifference) {
  const SoftmaxLayer layer = SoftmaxLayer::own(random_matrix(kVocab, kDim, 1));
  const auto head = LshMips::build(layer, {.tables = 4, .bits = 5});
  for (unsigned i = 0; i < 20; ++i) {
    const Eigen::VectorXf h = random_vector(kDim, 20 + i);
    const Eigen::VectorXf shorter = h / 100.0F;
    for (const std::size_t probes : {1U, 3U, 9U})
      EXPECT_EQ(screen(*head, shorter, probes), screen(*head, h, probes));
  }
}

TEST(LshMips, TablesAddTokens) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const Eigen::VectorXf h = random_vector(kDim, 2);
  const auto few = LshMips::build(layer, {.tables = 1, .bits = 6});
  const auto many = LshMips::build(layer, {.tables = 40, .bits = 6});
  EXPECT_LT(screen(*few, h, 1).size(), screen(*many, h, 1).size());
}

TEST(LshMips, ASeedGivesTheSameTablesAgain) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const Eigen::VectorXf h = random_vector(kDim, 2);
  const LshMipsOptions options{.tables = 4, .bits = 4, .seed = 9};
  EXPECT_EQ(screen(*LshMips::build(layer, options), h, 2), screen(*LshMips::build(layer, options), h, 2));
}

TEST(LshMips, RefusesUnusableOptions) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  EXPECT_THROW(LshMips::build(layer, {.tables = 0}), Error);
  EXPECT_THROW(LshMips::build(layer, {.bits = 0}), Error);
  EXPECT_THROW(LshMips::build(layer, {.bits = 25}), Error);
  EXPECT_THROW(LshMips::build(layer, {.probes = 0}), Error);
  EXPECT_THROW(LshMips::build(layer, random_matrix(5, kDim + 1, 1)), Error);
}

}  // namespace
}  // namespace topksoftmax
