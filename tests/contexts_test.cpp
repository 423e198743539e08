// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/contexts.hpp"

#include <gtest/gtest.h>

#include <string>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using testing::random_matrix;

TEST(Contexts, ViewRowsThatMayBeStrided) {
  const RowMajorMatrix H = random_matrix(5, 10, 1);
  const Contexts some = Contexts::of(H.block(1, 2, 3, 4));
  EXPECT_EQ(some.count, 3U);
  EXPECT_EQ(some.dim, 4U);
  EXPECT_EQ(some.stride, 10U);
  EXPECT_EQ(some.row(2), &H(3, 2));
  EXPECT_EQ(Contexts::of(ConstRows(H)).data, H.data());
}

TEST(Contexts, RefuseRowsWhoseValuesAreApart) {
  const RowMajorMatrix H = random_matrix(5, 10, 1);
  const Eigen::Map<const RowMajorMatrix, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> every_second(
      H.data(), 5, 5, {10, 2});
  EXPECT_EQ(error_of([&] { Contexts::of(every_second); }),
            "contexts: H has values 2 floats apart; they must lie next to each other: take a copy");
}

}  // namespace
}  // namespace topksoftmax
