// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/workspace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "support/allocations.hpp"
#include "support/executors.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace topksoftmax {
namespace {

TEST(ScratchBuffer, IsAlignedAndGrowsOnlyWhereItMust) {
  ScratchBuffer buffer;
  for (const std::size_t count : {0U, 1U, 100U, 5000U}) {
    auto* const values = buffer.get<float>(count);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values) % 64, 0U);
    std::fill_n(values, count, 1.0F);
  }
  const auto* const large = buffer.get<float>(5000);
  const std::size_t before = testing::allocations();
  EXPECT_EQ(buffer.get<float>(5000), large);
  EXPECT_EQ(static_cast<const void*>(buffer.get<double>(10)), large) << "whatever is kept in it";
  EXPECT_EQ(testing::allocations(), before);
}

TEST(ScratchBuffer, StaysAsItWasWithoutMemory) {
  if (!testing::can_fail_allocations()) GTEST_SKIP() << "allocations cannot be made to fail here";
  ScratchBuffer buffer;
  auto* const values = buffer.get<int>(10);
  values[9] = 17;
  {
    const testing::FailingAllocation failing(1);
    EXPECT_THROW(buffer.get<int>(10000), std::bad_alloc);
  }
  EXPECT_EQ(buffer.get<int>(10), values);
  EXPECT_EQ(values[9], 17);
}

TEST(TokenSet, SaysWhichTokensAreNew) {
  TokenSet set;
  set.clear(5);
  EXPECT_FALSE(set.contains(4));
  EXPECT_TRUE(set.insert(4));
  EXPECT_FALSE(set.insert(4));
  EXPECT_TRUE(set.contains(4));
  EXPECT_FALSE(set.contains(3));
  set.clear(5);
  EXPECT_FALSE(set.contains(4));
  EXPECT_TRUE(set.insert(4));
}

TEST(TokenSet, IsEmptyAfterItHasGrownAndForFewerTokens) {
  TokenSet set;
  for (const std::size_t vocab : {3U, 200U, 2U, 200U, 1000U}) {
    set.clear(vocab);
    for (TokenId id = 0; id < static_cast<TokenId>(vocab); ++id) {
      EXPECT_FALSE(set.contains(id)) << vocab;
      EXPECT_TRUE(set.insert(id)) << vocab;
    }
  }
}

TEST(TokenSet, IsEmptyWhereItsStampsBeginAgain) {
  StampedTokens<std::uint8_t> set;
  set.clear(4);
  EXPECT_TRUE(set.insert(1));
  for (int i = 2; i < 256; ++i) set.clear(4);  // to the last stamp
  EXPECT_FALSE(set.contains(1));
  EXPECT_TRUE(set.insert(2));
  set.clear(4);
  for (TokenId id = 0; id < 4; ++id) EXPECT_FALSE(set.contains(id)) << id;
  EXPECT_TRUE(set.insert(1));
  set.clear(4);
  EXPECT_FALSE(set.contains(1));
}

TEST(Workspace, ACrewIsLentForAsLongAsItIsWanted) {
  const SerialExecutor executor;
  Workspace workspace;
  {
    const detail::LentCrew crew(workspace, {&executor, 3});
    EXPECT_EQ(workspace.crew().executor, &executor);
    EXPECT_EQ(workspace.crew().threads, 3U);
  }
  EXPECT_EQ(workspace.crew().executor, nullptr);
  EXPECT_EQ(workspace.crew().threads, 1U);
}

TEST(Workspace, ItemsAreSharedInWorkspacesOfTheirThreads) {
  const testing::ReversedExecutor executor(3);
  std::vector<Workspace> workspaces(3);
  Workspace& first = workspaces[0];
  const detail::LentCrew crew(first, {&executor, 3, workspaces.data()});
  std::vector<Workspace*> used(50);
  std::vector<std::size_t> crews(used.size());
  detail::share_in_workspaces(first, used.size(), [&](std::size_t i, Workspace& own) {
    used[i] = &own;
    crews[i] = own.crew().threads;
  });
  for (Workspace& one : workspaces) EXPECT_GT(std::count(used.begin(), used.end(), &one), 0);
  EXPECT_EQ(std::count(used.begin(), used.end(), nullptr), 0);
  EXPECT_EQ(std::count(crews.begin(), crews.end(), 1U), 50) << "a busy crew was lent";
  EXPECT_EQ(first.crew().threads, 3U);

  Workspace alone;
  detail::share_in_workspaces(alone, 4, [&](std::size_t i, Workspace& own) { used[i] = &own; });
  EXPECT_EQ(std::count(used.begin(), used.end(), &alone), 4);
}

TEST(Workspace, EveryThreadOfACrewGetsAsManyParts) {
  const SerialExecutor executor;
  const std::size_t item = executor.grain() / 8;
  for (const std::size_t threads : {1U, 2U, 3U}) {
    Workspace workspace;
    workspace.set_crew({&executor, threads});
    for (std::size_t total = 1; total < 400; ++total) {
      std::vector<int> done(total);
      std::size_t parts = 0;
      detail::share(workspace, total, item, [&](std::size_t first, std::size_t count) {
        ++parts;
        for (std::size_t i = first; i < first + count; ++i) ++done[i];
      });
      ASSERT_EQ(std::count(done.begin(), done.end(), 1), static_cast<std::ptrdiff_t>(total));
      ASSERT_LE(parts, 4 * threads);
      // No part is too small to be worth a thread, but what rounding leaves for the last.
      ASSERT_LE((parts - 1) * 8, total);
      // Parts of a size that is rounded up may be one fewer.
      const std::size_t spare = parts % threads;
      ASSERT_TRUE(parts < threads || spare == 0 || spare + 1 == threads) << total << " of " << threads;
    }
  }
}

}  // namespace
}  // namespace topksoftmax
