// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/upper_bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/spans.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::Reference;
using testing::span_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<TokenId> all_ids(std::size_t vocab) {
  std::vector<TokenId> ids(vocab);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

/// How many of the bounds are below the best logit: that many tokens are told from it.
std::size_t count_below_best(std::span<const float> bounds, const Reference& reference) {
  const double best = *std::max_element(reference.logits.begin(), reference.logits.end());
  std::size_t count = 0;
  for (const float bound : bounds) count += static_cast<double>(bound) < best ? 1U : 0U;
  return count;
}

TEST(UpperBounds, NoLogitIsAboveItsBound) {
  constexpr std::size_t kVocab = 2003;
  const RowMajorMatrix contexts = clustered_contexts(300, 48, 6, 9);
  const std::vector<TokenId> ids = all_ids(kVocab);
  for (const LogitTransform& transform :
       {LogitTransform{}, LogitTransform{.scale = 2.0F, .soft_cap = 9.0F}}) {
    const SoftmaxLayer layer = random_layer(kVocab, 48, 3).with(transform);
    for (const CertifiedOptions& options :
         {CertifiedOptions{.width = 16, .boxes = BoundBoxes::never},
          CertifiedOptions{.width = 16, .boxes = BoundBoxes::always},
          CertifiedOptions{.prefix = 8, .int4_width = 32, .boxes = BoundBoxes::never}}) {
      const auto head = Certified::build(layer, contexts, options);
      Workspace workspace;
      std::vector<float> bounds(kVocab);
      std::size_t below = 0;
      for (Eigen::Index q = 0; q < 40; ++q) {
        const Eigen::VectorXf h = contexts.row(q);
        const Reference reference(layer, h);
        head->upper_bounds(span_of(h), ids, {}, workspace, bounds);
        for (std::size_t i = 0; i < kVocab; ++i) {
          ASSERT_GE(static_cast<double>(bounds[i]), reference.logits[i]) << "token " << i;
        }
        below += count_below_best(bounds, reference);
      }
      EXPECT_GT(below, 40 * kVocab / 4);
    }
  }
}

TEST(UpperBounds, BiasedTokensHaveNone) {
  const SoftmaxLayer layer = random_layer(1000, 16, 5);
  const RowMajorMatrix contexts = clustered_contexts(200, 16, 4, 2);
  const TokenBias bias[] = {{3, 100.0F}, {999, -1.0F}};
  const std::vector<TokenId> ids = {999, 3, 4, 3};
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto head = Certified::build(layer, contexts, {.boxes = boxes});
    Workspace workspace;
    std::vector<float> bounds(ids.size());
    const Eigen::VectorXf h = contexts.row(0);
    head->upper_bounds(span_of(h), ids, {.logit_bias = bias}, workspace, bounds);
    EXPECT_EQ(bounds[0], kInfinity);
    EXPECT_EQ(bounds[1], kInfinity);
    EXPECT_LT(bounds[2], kInfinity);
    EXPECT_EQ(bounds[3], kInfinity);
  }
}

TEST(UpperBounds, AreOfAModelsTokensWhereRowsAreMapped) {
  const SoftmaxLayer layer = random_layer(1000, 16, 5);
  const RowMajorMatrix contexts = clustered_contexts(200, 16, 4, 2);
  std::vector<TokenId> token_of_row;
  for (TokenId row = 0; row < 1000; ++row) token_of_row.push_back(row % 10 == 9 ? -1 : 2 * row);
  const std::shared_ptr<const TopKSoftmax> over_rows = Certified::build(layer, contexts);
  const auto head = MappedVocabulary::wrap(over_rows, token_of_row, 2000);
  const Eigen::VectorXf h = contexts.row(1);
  const Reference reference(layer, h);
  Workspace workspace;
  std::vector<float> bounds(2000);
  head->upper_bounds(span_of(h), all_ids(2000), {}, workspace, bounds);
  for (std::size_t id = 0; id < bounds.size(); ++id) {
    if (id % 2 == 1 || id / 2 % 10 == 9) {
      ASSERT_EQ(bounds[id], -kInfinity) << id;
    } else {
      ASSERT_GE(static_cast<double>(bounds[id]), reference.logits[id / 2]) << id;
    }
  }
  EXPECT_GT(count_below_best(bounds, reference), 1100U);
}

TEST(UpperBounds, ABackendWithoutProofHasNone) {
  const SoftmaxLayer layer = random_layer(100, 16, 5);
  const Fused head(layer);
  const Eigen::VectorXf h = testing::random_vector(16, 3);
  Workspace workspace;
  std::vector<float> bounds(2);
  head.upper_bounds(span_of(h), std::vector<TokenId>{0, 99}, {}, workspace, bounds);
  EXPECT_EQ(bounds[0], kInfinity);
  EXPECT_EQ(bounds[1], kInfinity);
}

TEST(UpperBounds, WhatHoldsButForAProbabilityIsNone) {
  const SoftmaxLayer layer = random_layer(500, 80, 5);
  const RowMajorMatrix contexts = clustered_contexts(100, 80, 4, 2);
  const auto head = Certified::build(
      layer, contexts,
      {.prefix = 8, .int4_width = 32, .boxes = BoundBoxes::never, .failure_probability = 1e-6});
  Workspace workspace;
  std::vector<float> bounds(2);
  const Eigen::VectorXf h = contexts.row(0);
  head->upper_bounds(span_of(h), std::vector<TokenId>{7, 8}, {}, workspace, bounds);
  EXPECT_EQ(bounds[0], kInfinity);
  EXPECT_EQ(bounds[1], kInfinity);
}

TEST(UpperBounds, AreInfiniteForAContextThatCannotBeBounded) {
  const SoftmaxLayer layer = random_layer(500, 16, 5);
  const auto head = Certified::build(layer, clustered_contexts(100, 16, 4, 2));
  Workspace workspace;
  std::vector<float> bounds(1);
  head->upper_bounds(span_of(Eigen::VectorXf::Zero(16)), std::vector<TokenId>{7}, {}, workspace, bounds);
  EXPECT_EQ(bounds[0], kInfinity);
}

TEST(UpperBounds, RefuseWhatIsNoToken) {
  const SoftmaxLayer layer = random_layer(100, 16, 5);
  const Fused head(layer);
  const Eigen::VectorXf h = testing::random_vector(16, 3);
  Workspace workspace;
  std::vector<float> bounds(1);
  EXPECT_THROW(head.upper_bounds(span_of(h), std::vector<TokenId>{100}, {}, workspace, bounds),
               std::invalid_argument);
  EXPECT_THROW(head.upper_bounds(span_of(h), std::vector<TokenId>{-1}, {}, workspace, bounds),
               std::invalid_argument);
  EXPECT_THROW(head.upper_bounds(span_of(h), std::vector<TokenId>{1, 2}, {}, workspace, bounds),
               std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
