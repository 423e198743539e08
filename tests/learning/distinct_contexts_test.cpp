// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/learning/distinct_contexts.hpp"

#include <gtest/gtest.h>

#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

TEST(DistinctContexts, AreTheFirstOfThoseThatAreEqualInTheirOrder) {
  RowMajorMatrix contexts(7, 2);
  contexts << 3, 1, 1, 2, 3, 1, 1, 1, 1, 2, 3, 1, 2, 3;
  RowMajorMatrix expected(4, 2);
  expected << 3, 1, 1, 2, 1, 1, 2, 3;
  EXPECT_EQ(detail::distinct_contexts(contexts), expected);
  EXPECT_EQ(detail::distinct_contexts(expected), expected);
}

TEST(DistinctContexts, AreOneWhereAllAreEqual) {
  EXPECT_EQ(detail::distinct_contexts(RowMajorMatrix::Ones(1000, 3)), RowMajorMatrix::Ones(1, 3));
}

TEST(DistinctContexts, MayBeNone) {
  EXPECT_EQ(detail::distinct_contexts(RowMajorMatrix(0, 3)).rows(), 0);
}

}  // namespace
}  // namespace topksoftmax
