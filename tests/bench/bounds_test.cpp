// SPDX-License-Identifier: Apache-2.0
//
// The bounds that the harness compares with Certified's: exact, or their figures mean nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "bounds/balls.hpp"
#include "bounds/panorama.hpp"
#include "support/layers.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;

constexpr Eigen::Index kDim = 24;

std::vector<std::unique_ptr<TopKSoftmax>> bounds_of(const SoftmaxLayer& layer,
                                                    const RowMajorMatrix& contexts) {
  const BuildMaterial material = {.layer = layer, .contexts = Contexts::of(contexts)};
  std::vector<std::unique_ptr<TopKSoftmax>> all;
  for (const char* clusters : {"0", "1", "7"}) {
    all.push_back(bench::ball_bounds().build(material, {{"clusters", clusters}}));
  }
  for (const char* levels : {"1", "5", "8", "100"}) {
    all.push_back(bench::panorama_bounds().build(material, {{"levels", levels}}));
  }
  return all;
}

void expect_exact(const SoftmaxLayer& layer, const RowMajorMatrix& contexts, const QueryOptions& options) {
  const auto fused = Fused::make(layer);
  for (const auto& head : bounds_of(layer, contexts)) {
    for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
      for (const float scale : {1.0F, 0.0F, 1e-30F, 300.0F, 1e30F}) {
        const Eigen::VectorXf h = scale * contexts.row(i);
        const TopK wanted = fused->query(h, options);
        const TopK answer = head->query(h, options);
        ASSERT_EQ(answer.ids, wanted.ids) << head->name() << ", context " << i << " · " << scale;
        ASSERT_EQ(answer.logits, wanted.logits) << head->name();
        ASSERT_TRUE(answer.certified);
      }
    }
  }
}

TEST(OtherBounds, AnswerExactly) {
  const RowMajorMatrix contexts = clustered_contexts(60, kDim, 5, 3);
  for (const Eigen::Index vocab : {1, 15, 16, 500}) {
    expect_exact(random_layer(vocab, kDim, 1), contexts, {.k = 5});
    expect_exact(SoftmaxLayer::own(random_matrix(vocab, kDim, 2)), contexts, {.k = 40});
  }
}

TEST(OtherBounds, AnswerExactlyWhereRowsAreAlikeOrOfManyScales) {
  const RowMajorMatrix contexts = clustered_contexts(20, kDim, 5, 3);
  RowMajorMatrix alike = random_matrix(1, kDim, 4).replicate(300, 1);
  RowMajorMatrix scaled = random_matrix(300, kDim, 5);
  for (Eigen::Index v = 0; v < 300; ++v) {
    alike(v, v % kDim) = std::nextafter(alike(v, v % kDim), v % 3 == 0 ? 100.0F : -100.0F);
    scaled.row(v) *= std::pow(10.0F, static_cast<float>(v % 9 - 4));
  }
  expect_exact(SoftmaxLayer::own(alike), contexts, {.k = 7});
  expect_exact(SoftmaxLayer::own(scaled, random_vector(300, 6, 100.0F)), contexts, {.k = 7});
  expect_exact(SoftmaxLayer::own(RowMajorMatrix::Zero(300, kDim)), contexts, {.k = 7});
}

TEST(OtherBounds, TakeMasksAndBiases) {
  TokenMask mask(300);
  for (TokenId id = 0; id < 300; id += 2) mask.allow(id);
  const std::vector<TokenBias> biases = {{4, 3.0F}, {5, 9.0F}, {200, -1.0F}};
  expect_exact(random_layer(300, kDim, 1), clustered_contexts(20, kDim, 5, 3),
               {.k = 10, .allowed = mask, .logit_bias = biases});
}

TEST(Balls, RuleMostRowsOutWhereRowsAreOfFewKinds) {
  const SoftmaxLayer layer = SoftmaxLayer::own(clustered_contexts(2000, kDim, 60, 7));
  const RowMajorMatrix contexts = clustered_contexts(40, kDim, 5, 3);
  const auto balls = bench::ball_bounds().build({.layer = layer, .contexts = Contexts::of(contexts)}, {});
  double candidates = 0.0;
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    const QueryWork work = balls->query(contexts.row(i), {.k = 3}).work;
    EXPECT_FALSE(work.fell_back);
    candidates += static_cast<double>(work.candidates);
  }
  EXPECT_LT(candidates / static_cast<double>(contexts.rows()), 1000.0);
}

TEST(Panorama, MeetsFewRowsToTheEndWhereComponentsFall) {
  RowMajorMatrix W = random_matrix(2000, kDim, 1, 1.0F);
  for (Eigen::Index j = 0; j < kDim; ++j) W.col(j) /= static_cast<float>(1 + j * j);
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const RowMajorMatrix contexts = random_matrix(40, kDim, 2, 1.0F);
  const auto panorama =
      bench::panorama_bounds().build({.layer = layer, .contexts = Contexts::of(contexts)}, {});
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    const QueryWork work = panorama->query(contexts.row(i), {.k = 3}).work;
    EXPECT_FALSE(work.fell_back);
    EXPECT_LT(work.candidates, 600U);
    EXPECT_LT(work.bytes_read, layer.bytes());
  }
}

}  // namespace
}  // namespace topksoftmax
