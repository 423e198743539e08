// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/storage/stored_lists.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "topksoftmax/storage/stored_array.hpp"

namespace topksoftmax {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StoredLists, AreTheListsThatWereCopied) {
  const std::vector<std::vector<int>> lists = {{3, 1}, {}, {7}, {}};
  const auto stored = StoredLists<int>::copy(lists);
  ASSERT_EQ(stored.size(), 4U);
  EXPECT_THAT(stored[0], ElementsAre(3, 1));
  EXPECT_THAT(stored[1], IsEmpty());
  EXPECT_THAT(stored[2], ElementsAre(7));
  EXPECT_THAT(stored[3], IsEmpty());
  EXPECT_THAT(stored.starts().span(), ElementsAre(0U, 2U, 2U, 3U, 3U));
  EXPECT_THAT(stored.values().span(), ElementsAre(3, 1, 7));
  EXPECT_EQ(stored.bytes(), 5 * sizeof(std::uint64_t) + 3 * sizeof(int));
}

TEST(StoredLists, OfNothing) {
  EXPECT_EQ(StoredLists<int>().size(), 0U);
  EXPECT_EQ(StoredLists<int>().bytes(), 0U);
  const auto none = StoredLists<int>::copy({});
  EXPECT_EQ(none.size(), 0U);
  EXPECT_THAT(none.values().span(), IsEmpty());
}

TEST(StoredLists, MayBeginBehindOtherValues) {
  const StoredLists<int, std::uint32_t> stored(
      StoredArray<std::uint32_t>::own(std::vector<std::uint32_t>{2, 3, 5}),
      StoredArray<int>::own(std::vector<int>{0, 1, 2, 3, 4}));
  ASSERT_EQ(stored.size(), 2U);
  EXPECT_THAT(stored[0], ElementsAre(2));
  EXPECT_THAT(stored[1], ElementsAre(3, 4));
}

TEST(StoredLists, CopiesShareTheValues) {
  auto lists = StoredLists<int>::copy(std::vector<std::vector<int>>{{1, 2}});
  const StoredLists<int> other = lists;
  EXPECT_EQ(other.values().data(), lists.values().data());
  lists = {};
  EXPECT_THAT(other[0], ElementsAre(1, 2));
}

}  // namespace
}  // namespace topksoftmax
