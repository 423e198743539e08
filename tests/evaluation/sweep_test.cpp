// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/sweep.hpp"

#include <gtest/gtest.h>

namespace topksoftmax {
namespace {

TEST(Sweep, KeepsWhatNothingBeats) {
  const std::vector<TradeOff> points = {{0.9, 10.0}, {0.95, 5.0}, {0.94, 4.0}, {0.8, 10.0},
                                        {0.99, 1.0}, {0.95, 5.0}, {0.5, 20.0}};
  EXPECT_EQ(pareto_front(points), (std::vector<std::size_t>{6, 0, 1, 4}));
  EXPECT_TRUE(pareto_front({}).empty());
}

TEST(Geometric, GrowsByTheSameFactorAndNamesNoValueTwice) {
  EXPECT_EQ(geometric(1, 16, 5), (std::vector<std::size_t>{1, 2, 4, 8, 16}));
  EXPECT_EQ(geometric(1, 3, 9), (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_EQ(geometric(7, 7, 4), (std::vector<std::size_t>{7}));
}

}  // namespace
}  // namespace topksoftmax
