// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/pareto_front.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace topksoftmax {
namespace {

TEST(ParetoFront, KeepsWhatNothingBeats) {
  const std::vector<TradeOff> points = {{0.9, 10.0}, {0.95, 5.0}, {0.94, 4.0}, {0.8, 10.0},
                                        {0.99, 1.0}, {0.95, 5.0}, {0.5, 20.0}};
  EXPECT_EQ(pareto_front(points), (std::vector<std::size_t>{6, 0, 1, 4}));
  EXPECT_TRUE(pareto_front({}).empty());
}

}  // namespace
}  // namespace topksoftmax
