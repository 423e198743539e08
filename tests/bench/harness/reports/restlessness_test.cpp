// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/restlessness.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace topksoftmax::bench {
namespace {

TEST(Restlessness, IsRemarkedWhereRoundsDisagree) {
  EXPECT_TRUE(remarks_on_spread(0.0).empty());
  EXPECT_TRUE(remarks_on_spread(0.1).empty());
  EXPECT_TRUE(remarks_on_spread(std::numeric_limits<double>::quiet_NaN()).empty());
  EXPECT_EQ(remarks_on_spread(0.25),
            std::vector<std::string>{"the machine is restless: rounds differ by up to 25 %"});
}

TEST(Restlessness, IsThatOfTheWorstTiming) {
  EXPECT_EQ(largest_spread({}), 0.0);
  EXPECT_EQ(largest_spread({{1.0, 0.2}, {2.0, 0.3}, {3.0, 0.1}}), 0.3);
}

TEST(Restlessness, LeavesOutWhatOneRoundInFourDidAlone) {
  EXPECT_EQ(detail::spread_of({1.0, 1.0, 1.0, 1.0, 9.0}), 0.0);
  EXPECT_DOUBLE_EQ(detail::spread_of({1.0, 2.0, 3.0, 4.0, 5.0}), 2.0 / 3.0);
}

}  // namespace
}  // namespace topksoftmax::bench
