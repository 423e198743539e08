// SPDX-License-Identifier: Apache-2.0
#include "harness/restlessness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace topksoftmax::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Restlessness, IsRemarkedWhereRoundsDisagree) {
  EXPECT_THAT(remarks_on_spread(0.0), IsEmpty());
  EXPECT_THAT(remarks_on_spread(0.1), IsEmpty());
  EXPECT_THAT(remarks_on_spread(std::numeric_limits<double>::quiet_NaN()), IsEmpty());
  EXPECT_THAT(remarks_on_spread(0.25), ElementsAre("the machine is restless: rounds differ by up to 25 %"));
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
