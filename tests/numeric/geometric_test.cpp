// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/geometric.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace topksoftmax {
namespace {

TEST(Geometric, GrowsByTheSameFactorAndNamesNoValueTwice) {
  EXPECT_EQ(geometric(1, 16, 5), (std::vector<std::size_t>{1, 2, 4, 8, 16}));
  EXPECT_EQ(geometric(1, 3, 9), (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_EQ(geometric(7, 7, 4), (std::vector<std::size_t>{7}));
}

}  // namespace
}  // namespace topksoftmax
