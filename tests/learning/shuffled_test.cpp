// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/learning/shuffled.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace topksoftmax {
namespace {

TEST(Shuffled, IsTheSameOrderEverywhere) {
  std::mt19937_64 engine(1);
  EXPECT_EQ(detail::shuffled(6, engine), (std::vector<std::size_t>{1, 3, 0, 4, 5, 2}));
  EXPECT_EQ(detail::shuffled(0, engine), std::vector<std::size_t>());
}

TEST(Shuffled, HasEveryNumberOnce) {
  std::mt19937_64 engine(2);
  std::vector<std::size_t> order = detail::shuffled(100, engine);
  EXPECT_NE(order, detail::shuffled(100, engine));
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
}

}  // namespace
}  // namespace topksoftmax
