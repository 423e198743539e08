// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/fused.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/exact.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::Reference;

TEST(Fused, AlgorithmTwoSumsOverAllTokensWithTheirBias) {
  // As printed, the paper's second loop compares p_i without its bias to the maximum with it: the sum stays
  // empty.
  const SoftmaxLayer layer = random_layer(1000, 30, 1);
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Eigen::VectorXf h = random_vector(30, seed);
    const Reference reference(layer, h);
    const TopK answer = Fused::make(layer)->query(h, {.k = 1});
    EXPECT_EQ(answer.normalizer, Normalizer::exact);
    EXPECT_NEAR(answer.log_z, reference.log_z, 1e-5);
    EXPECT_NEAR(answer.log_prob(0), static_cast<double>(answer.logits[0]) - reference.log_z, 1e-5);
  }
}

TEST(Fused, AlgorithmThreeFindsTheSameTokenWithoutProbabilities) {
  const SoftmaxLayer layer = random_layer(1000, 30, 1);
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Eigen::VectorXf h = random_vector(30, seed);
    const TopK with = Fused::make(layer)->query(h, {.k = 1});
    const TopK without = Fused::make(layer)->query(h, {.k = 1, .probabilities = false});
    EXPECT_EQ(without.ids, with.ids);
    EXPECT_EQ(without.logits, with.logits);
    EXPECT_EQ(without.normalizer, Normalizer::none);
  }
}

TEST(Fused, IsExactBitForBit) {
  for (const Eigen::Index vocab : {1, 2, 3, 63, 64, 65, 10007}) {
    for (const Eigen::Index dim : {1, 7, 16, 200}) {
      const SoftmaxLayer layer = random_layer(vocab, dim, 5);
      const Eigen::VectorXf h = random_vector(dim, 6);
      const TopK exact = Exact::make(layer)->query(h, {.k = 10});
      const TopK fused = Fused::make(layer)->query(h, {.k = 10});
      EXPECT_EQ(fused.ids, exact.ids);
      EXPECT_EQ(fused.logits, exact.logits);
      EXPECT_NEAR(fused.log_z, exact.log_z, 1e-5);
    }
  }
}

TEST(Fused, HugeLogitsKeepLogZFinite) {
  RowMajorMatrix W(3, 1);
  W << 1e30F, -1e30F, 0.0F;
  const auto fused = Fused::make(SoftmaxLayer::borrow(W));
  const TopK positive = fused->query(Eigen::VectorXf::Ones(1), {.k = 3});
  EXPECT_EQ(positive.ids, (std::vector<TokenId>{0, 2, 1}));
  EXPECT_DOUBLE_EQ(positive.log_z, static_cast<double>(1e30F));
  EXPECT_EQ(positive.log_prob(0), 0.0);
  const TopK lowest = fused->query(Eigen::VectorXf::Constant(1, 1e30F), {.k = 3});
  EXPECT_EQ(lowest.logits[0], std::numeric_limits<float>::max());
  EXPECT_EQ(lowest.logits[2], std::numeric_limits<float>::lowest());
  EXPECT_TRUE(std::isfinite(lowest.log_z));
}

TEST(Fused, DenormalsAreNumbers) {
  RowMajorMatrix W = RowMajorMatrix::Constant(3, 1, 1e-42F);
  W(1, 0) = 2e-42F;
  const TopK answer = Fused::make(SoftmaxLayer::borrow(W))->query(Eigen::VectorXf::Ones(1), {.k = 1});
  EXPECT_EQ(answer.ids[0], 1);
  EXPECT_EQ(answer.logits[0], 2e-42F);
}

TEST(Fused, TiesGoToTheLowerId) {
  const RowMajorMatrix W = RowMajorMatrix::Ones(300, 8);
  const TopK answer = Fused::make(SoftmaxLayer::borrow(W))->query(Eigen::VectorXf::Ones(8), {.k = 4});
  EXPECT_EQ(answer.ids, (std::vector<TokenId>{0, 1, 2, 3}));
}

TEST(Fused, ScoresNoMoreThanTheAllowedTokens) {
  const SoftmaxLayer layer = testing::random_layer(1000, 16, 3);
  const Fused fused(layer);
  const Exact exact(layer);
  const Eigen::VectorXf h = testing::random_vector(16, 4);
  for (const std::size_t allowed : {1U, 10U, 120U}) {
    TokenMask mask(1000);
    for (std::size_t n = 0; n < allowed; ++n) mask.allow(static_cast<TokenId>(n * 7 % 1000));
    const QueryOptions options = {.k = 8, .allowed = mask};
    const TopK answer = fused.query(h, options);
    const TopK truth = exact.query(h, options);
    EXPECT_EQ(answer.work.candidates, allowed);
    EXPECT_EQ(answer.ids, truth.ids);
    EXPECT_EQ(answer.logits, truth.logits);
    EXPECT_NEAR(answer.log_z, truth.log_z, 1e-5);
  }
}

}  // namespace
}  // namespace topksoftmax
