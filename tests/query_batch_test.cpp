// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/query_batch.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "topksoftmax/query.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kStride = 5;

bool asks_for_two(const Query& query) {
  return query.k == 2;
}

TEST(QueryBatch, GivesEveryContextTheSameOptions) {
  const std::array<float, 4 * kStride> contexts = {};
  Query query;
  query.h = contexts.data();
  query.k = 2;
  const QueryBatch batch(query, kStride, 4);
  EXPECT_TRUE(batch.same_options());
  EXPECT_EQ(batch.size(), 4U);
  for (std::size_t q = 0; q < 4; ++q) {
    EXPECT_EQ(batch[q].h, contexts.data() + q * kStride);
    EXPECT_EQ(batch[q].k, 2U);
    EXPECT_EQ(&batch.edits(q), &query.edits);
  }
  const QueryBatch part = batch.part(1, 2);
  EXPECT_EQ(part.size(), 2U);
  EXPECT_EQ(part.contexts(), contexts.data() + kStride);
  EXPECT_EQ(part[1].h, contexts.data() + 2 * kStride);
  EXPECT_TRUE(part.same_options() && part.all_of(asks_for_two));
}

TEST(QueryBatch, GivesEachContextItsOwnOptions) {
  const std::array<float, 3 * kStride> contexts = {};
  std::vector<Query> queries(3);
  for (std::size_t q = 0; q < 3; ++q) {
    queries[q].h = contexts.data() + q * kStride;
    queries[q].k = q + 1;
  }
  const QueryBatch batch(queries, kStride);
  EXPECT_FALSE(batch.same_options());
  for (std::size_t q = 0; q < 3; ++q) {
    EXPECT_EQ(batch[q].h, queries[q].h);
    EXPECT_EQ(batch[q].k, q + 1);
    EXPECT_EQ(&batch.edits(q), &queries[q].edits);
  }
  EXPECT_TRUE(batch.any_of(asks_for_two));
  EXPECT_FALSE(batch.all_of(asks_for_two));
  EXPECT_FALSE(batch.part(2, 1).any_of(asks_for_two));
  EXPECT_TRUE(batch.part(1, 1).all_of(asks_for_two));
  EXPECT_EQ(batch.part(1, 2)[1].h, queries[2].h);
}

TEST(QueryBatch, IsOneQuery) {
  const std::array<float, kStride> h = {};
  Query query;
  query.h = h.data();
  const QueryBatch batch(query);
  EXPECT_EQ(batch.size(), 1U);
  EXPECT_EQ(batch[0].h, h.data());
}

}  // namespace
}  // namespace topksoftmax
