// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/falling_tokens.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "support/allocations.hpp"
#include "support/layers.hpp"
#include "support/spans.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::span_of;

constexpr std::size_t kVocab = 4003;
constexpr std::size_t kDim = 48;

/// A head whose bounds are those of codes in boxes, or of prefixes alone.
std::unique_ptr<Certified> make_head(const SoftmaxLayer& layer, BoundBoxes boxes) {
  return Certified::build(layer, clustered_contexts(400, kDim, 6, 9), {.boxes = boxes});
}

/// The tokens that bounds give, until they give none.
std::vector<TokenId> all_of(detail::FallingTokens& falling, Workspace& workspace) {
  std::vector<TokenId> ids;
  while (const std::optional<ScoredToken> token = falling.next(workspace)) ids.push_back(token->id);
  return ids;
}

/// As many of the best tokens as there are `ids`.
std::vector<TokenId> best(const SoftmaxLayer& layer, const Eigen::VectorXf& h, QueryOptions query,
                          const std::vector<TokenId>& ids) {
  query.k = ids.size();
  return Fused(layer).query(h, query).ids;
}

TEST(FallingTokens, AreTheBestOnesInOrder) {
  const RowMajorMatrix contexts = clustered_contexts(30, kDim, 6, 9);
  for (const LogitTransform& transform :
       {LogitTransform{}, LogitTransform{.scale = 2.0F, .soft_cap = 9.0F}}) {
    const SoftmaxLayer layer = random_layer(kVocab, kDim, 3).with(transform);
    for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
      const auto head = make_head(layer, boxes);
      Workspace workspace;
      detail::FallingTokens falling(*head);
      std::size_t given = 0;
      for (Eigen::Index q = 0; q < contexts.rows(); ++q) {
        const Eigen::VectorXf h = contexts.row(q);
        ASSERT_TRUE(falling.start(span_of(h), {}, workspace));
        const std::vector<TokenId> ids = all_of(falling, workspace);
        ASSERT_EQ(ids, best(layer, h, {}, ids));
        EXPECT_EQ(falling.given().size(), ids.size());
        given += ids.size();
      }
      EXPECT_GT(given, 30U * 200U);  // of 333 at the most
    }
  }
}

TEST(FallingTokens, KeepToMasksAndBiases) {
  const RowMajorMatrix contexts = clustered_contexts(10, kDim, 6, 9);
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < static_cast<TokenId>(kVocab); id += 2) mask.allow(id);
  const TokenBias biases[] = {{4, -9.0F}, {9, 50.0F}, {600, 3.0F}, {1200, 0.0F}};
  const QueryOptions edited = {.allowed = mask, .logit_bias = biases};
  const auto head = make_head(layer, BoundBoxes::always);
  Workspace workspace;
  detail::FallingTokens falling(*head);
  for (Eigen::Index q = 0; q < contexts.rows(); ++q) {
    const Eigen::VectorXf h = contexts.row(q);
    // The tokens of a context before do not stay away from the next one.
    for (const QueryOptions& query : {edited, QueryOptions{}}) {
      ASSERT_TRUE(falling.start(span_of(h), query, workspace));
      const std::vector<TokenId> ids = all_of(falling, workspace);
      EXPECT_GT(ids.size(), 50U);
      ASSERT_EQ(ids, best(layer, h, query, ids));
    }
  }
}

TEST(FallingTokens, EqualOnesFallById) {
  RowMajorMatrix W = RowMajorMatrix::Zero(kVocab, kDim);
  const Eigen::VectorXf h = clustered_contexts(1, kDim, 1, 9).row(0);
  // Twenty tokens are the same, forty others are, and all behind them.
  for (Eigen::Index row = 0; row < 60; ++row) W.row(67 * row) = (row % 3 == 0 ? 1.0F : 0.5F) * h;
  const SoftmaxLayer layer = SoftmaxLayer::own(W, {});
  const auto head = make_head(layer, BoundBoxes::never);
  Workspace workspace;
  detail::FallingTokens falling(*head);
  ASSERT_TRUE(falling.start(span_of(h), {}, workspace));
  const std::vector<TokenId> ids = all_of(falling, workspace);
  EXPECT_EQ(ids.size(), 60U);
  EXPECT_EQ(ids, best(layer, h, {}, ids));
}

TEST(FallingTokens, NeedBoundsAndManyTokens) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const Eigen::VectorXf h = clustered_contexts(1, kDim, 1, 9).row(0);
  Workspace workspace;
  const Fused fused(layer);
  EXPECT_FALSE(detail::FallingTokens(fused).start(span_of(h), {}, workspace));
  const auto head = make_head(layer, BoundBoxes::never);
  TokenMask few(kVocab);
  for (TokenId id = 0; id < 100; ++id) few.allow(id);
  EXPECT_FALSE(detail::FallingTokens(*head).start(span_of(h), {.allowed = few}, workspace));
}

TEST(FallingTokens, LoseNoneWhereMemoryRunsOut) {
  if (!testing::can_fail_allocations()) GTEST_SKIP() << "operator new is not ours";
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const auto head = make_head(layer, BoundBoxes::always);
  const Eigen::VectorXf h = clustered_contexts(1, kDim, 1, 9).row(0);
  std::size_t failures = 0;
  bool failed = true;
  for (std::size_t n = 1; failed; ++n) {
    Workspace workspace;
    detail::FallingTokens falling(*head);
    ASSERT_TRUE(falling.start(span_of(h), {}, workspace));
    std::vector<TokenId> ids;
    ids.reserve(kVocab);
    {
      const testing::FailingAllocation failing(n);
      bool ended = false;
      while (!ended) {
        try {
          const std::optional<ScoredToken> token = falling.next(workspace);
          if (token) ids.push_back(token->id);
          ended = !token;
        } catch (const std::bad_alloc&) {
          ++failures;
        }
      }
      failed = failing.has_failed();
    }
    EXPECT_GT(ids.size(), 200U) << n;
    EXPECT_EQ(ids, best(layer, h, {}, ids)) << n;
  }
  EXPECT_GT(failures, 4U);
}

}  // namespace
}  // namespace topksoftmax
