// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/token_cursor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "conformance/backends.hpp"
#include "decoding/draws_on_threads.hpp"
#include "support/allocations.hpp"
#include "support/executors.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/shortlist/build.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::Reference;

constexpr Eigen::Index kVocab = 700;
constexpr Eigen::Index kDim = 24;

std::vector<TokenId> all_of(TokenCursor& cursor) {
  std::vector<TokenId> ids;
  while (const std::optional<ScoredToken> token = cursor.next()) ids.push_back(token->id);
  return ids;
}

std::vector<TokenId> all_of(TokenCursor&& cursor) {
  return all_of(cursor);
}

std::vector<TokenId> sorted(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// Expects tokens by falling logits.
void expect_falling(std::span<const TokenId> ids, const Reference& reference) {
  for (std::size_t i = 1; i < ids.size(); ++i) {
    const auto before = static_cast<std::size_t>(ids[i - 1]);
    const auto after = static_cast<std::size_t>(ids[i]);
    EXPECT_GE(reference.logits[before] + reference.tolerance(before, kDim) + reference.tolerance(after, kDim),
              reference.logits[after])
        << "at " << i;
  }
}

/// Expects the tokens that queries for 8, 32, … find, by falling logits what each adds to those before it:
/// what an approximate backend finds only when it is asked for more comes later, however likely it is.
void expect_found_by_queries(std::span<const TokenId> ids, const TopKSoftmax& head, const Eigen::VectorXf& h,
                             const Reference& reference) {
  std::size_t given = 0;
  for (std::size_t k = 8; given < ids.size() && k < 16 * kVocab; k = 4 * std::max(k, given)) {
    std::vector<TokenId> found = sorted(head.query(h, {.k = k}).ids);
    for (const TokenId id : ids.first(given)) std::erase(found, id);
    ASSERT_LE(found.size(), ids.size() - given);
    const std::span<const TokenId> next = ids.subspan(given, found.size());
    EXPECT_EQ(sorted({next.begin(), next.end()}), found) << k;
    expect_falling(next, reference);
    given += found.size();
  }
  EXPECT_EQ(given, ids.size());
}

TEST(TokenCursor, GivesEveryTokenInOrder) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const Fused fused(layer);
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto head = backend.make(layer, contexts);
    SCOPED_TRACE(backend.name);
    for (Eigen::Index row = 0; row < 3; ++row) {
      const Eigen::VectorXf h = contexts.row(row);
      const Reference reference(layer, h);
      TokenCursor cursor(*head, {h.data(), kDim});
      if (head->certifies()) {
        EXPECT_TRUE(cursor.certified());
        const std::vector<TokenId> ids = all_of(cursor);
        EXPECT_EQ(ids, fused.query(h, {.k = kVocab}).ids);
        expect_falling(ids, reference);
      } else {
        const std::vector<TokenId> ids = all_of(cursor);
        EXPECT_EQ(sorted(ids), sorted(head->query(h, {.k = kVocab}).ids));
        expect_found_by_queries(ids, *head, h, reference);
      }
    }
  }
}

TEST(TokenCursor, CanBeStartedAgain) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const Fused fused(layer);
  const TokenBias bias[] = {{5, 90.0F}};
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto head = backend.make(layer, contexts);
    TokenCursor cursor(*head, {contexts.row(0).data(), kDim}, {.logit_bias = bias});
    EXPECT_EQ(cursor.next()->id, 5) << backend.name;
    for (Eigen::Index row = 0; row < 3; ++row) {
      const std::span<const float> h(contexts.row(row).data(), kDim);
      // After tokens that bounds tell, and after some that only queries do.
      for (int i = 0; i < (row == 1 ? 100 : 3); ++i) cursor.next();
      cursor.start(h);
      const std::vector<TokenId> ids = all_of(cursor);
      EXPECT_EQ(ids, all_of(TokenCursor(*head, h))) << backend.name;
    }
    const std::vector<float> wrong(kDim, std::numeric_limits<float>::quiet_NaN());
    EXPECT_THROW(cursor.start(wrong), std::invalid_argument);
    EXPECT_THROW(cursor.next(), std::invalid_argument);
    cursor.start({contexts.row(0).data(), kDim});
    EXPECT_TRUE(cursor.next());
  }
}

TEST(TokenCursor, ThreadsChangeNoToken) {
  const testing::SharedWork work;
  for (const auto& head : work.heads()) {
    SCOPED_TRACE(head->name());
    const testing::CountedExecutor executor;
    TokenCursor one(*head, work.context(0));
    TokenCursor many(*head, work.context(0));
    many.lend_threads(executor);
    for (Eigen::Index row = 0; row < 3; ++row) {
      const std::size_t loops = executor.loops();
      one.start(work.context(row));
      many.start(work.context(row));
      for (int i = 0; i < 1000; ++i) {
        const ScoredToken alone = *one.next();
        const ScoredToken shared = *many.next();
        ASSERT_EQ(shared.id, alone.id) << i;
        ASSERT_EQ(shared.logit, alone.logit) << i;
      }
      EXPECT_GT(executor.loops(), loops) << "nothing was shared";
    }
  }
}

TEST(TokenCursor, IsCertifiedAsLongAsEveryTokenIs) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const auto head = Shortlist::build(layer, contexts, {.top_frequent = 60});
  const std::span<const float> h(contexts.data(), kDim);
  // It does not prove that its 60 tokens are the best, and scores all for more of them.
  ASSERT_FALSE(head->query(contexts.row(0).transpose(), {.k = 8}).certified);
  ASSERT_TRUE(head->query(contexts.row(0).transpose(), {.k = 128}).certified);
  TokenCursor cursor(*head, h);
  EXPECT_FALSE(cursor.certified());
  while (cursor.next()) EXPECT_FALSE(cursor.certified());
  EXPECT_FALSE(cursor.certified());

  const Fused exact(layer);
  TokenCursor proven(exact, h);
  while (proven.next()) EXPECT_TRUE(proven.certified());
}

TEST(TokenCursor, KeepsToTheMask) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const Fused head(layer);
  const RowMajorMatrix contexts = clustered_contexts(1, kDim, 1, 9);
  const std::span<const float> h(contexts.data(), kDim);
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < 40; ++id) mask.allow(17 * id);
  const TokenBias bias[] = {{34, 9.0F}};
  const QueryOptions query = {.allowed = mask, .logit_bias = bias};
  QueryOptions whole = query;
  whole.k = kVocab;
  EXPECT_EQ(all_of(TokenCursor(head, h, query)), head.query(contexts.row(0).transpose(), whole).ids);
  const TokenMask none(kVocab);
  EXPECT_FALSE(TokenCursor(head, h, {.allowed = none}).next());
}

TEST(TokenCursor, LosesNoTokenWhereMemoryRunsOut) {
  if (!testing::can_fail_allocations()) GTEST_SKIP() << "operator new is not ours";
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const Fused head(layer);
  const RowMajorMatrix contexts = clustered_contexts(1, kDim, 1, 9);
  const std::span<const float> h(contexts.data(), kDim);
  const std::vector<TokenId> expected = all_of(TokenCursor(head, h));
  std::size_t failures = 0;
  bool failed = true;
  for (std::size_t n = 1; failed; ++n) {
    TokenCursor cursor(head, h);
    std::vector<TokenId> ids;
    ids.reserve(expected.size());
    {
      const testing::FailingAllocation failing(n);
      bool ended = false;
      while (!ended) {
        try {
          const std::optional<ScoredToken> token = cursor.next();
          if (token) ids.push_back(token->id);
          ended = !token;
        } catch (const std::bad_alloc&) {
          ++failures;
        }
      }
      failed = failing.has_failed();
    }
    EXPECT_EQ(ids, expected) << n;
  }
  EXPECT_GT(failures, 4U);
}

TEST(TokenCursor, BeginsWithTheNewContextWhereMemoryRunsOut) {
  if (!testing::can_fail_allocations()) GTEST_SKIP() << "operator new is not ours";
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 5, 9);
  const auto certified = Certified::build(layer, contexts);
  const Fused fused(layer);
  const auto context = [&](Eigen::Index i) { return std::span<const float>(contexts.row(i).data(), kDim); };
  const TokenBias bias[] = {{3, 2.0F}, {500, -1.0F}};
  const QueryOptions biased = {.logit_bias = bias};
  for (const TopKSoftmax* head :
       {static_cast<const TopKSoftmax*>(certified.get()), static_cast<const TopKSoftmax*>(&fused)}) {
    const std::vector<TokenId> expected = all_of(TokenCursor(*head, context(1), biased));
    for (const std::size_t given : {std::size_t{0}, std::size_t{3}, expected.size()}) {
      std::size_t failures = 0;
      bool failed = true;
      for (std::size_t n = 1; failed; ++n) {
        TokenCursor cursor(*head, context(0));
        for (std::size_t i = 0; i < given; ++i) cursor.next();
        {
          const testing::FailingAllocation failing(n);
          try {
            cursor.start(context(1), biased);
          } catch (const std::bad_alloc&) {
            ++failures;
          }
          failed = failing.has_failed();
        }
        ASSERT_EQ(all_of(cursor), expected) << head->name() << ", allocation " << n;
        EXPECT_TRUE(cursor.certified());
      }
      EXPECT_TRUE(given > 0 || failures > 0) << head->name();
    }
  }
}

TEST(TokenCursor, RefusesUnusableOptionsOnEveryHead) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 5, 9);
  const std::span<const float> h(contexts.data(), kDim);
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto head = backend.make(layer, contexts);
    EXPECT_THROW(TokenCursor(*head, h, {.k = 0}), std::invalid_argument) << backend.name;
    EXPECT_THROW(TokenCursor(*head, h, {.log_z_tolerance = -1.0}), std::invalid_argument) << backend.name;
  }
}

}  // namespace
}  // namespace topksoftmax
