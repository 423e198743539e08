// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/number_text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace topksoftmax {
namespace {

TEST(NumberText, IsTheShortestThatReadsBack) {
  EXPECT_EQ(detail::number_text(0.1), "0.1");
  EXPECT_EQ(detail::number_text(0.1F), "0.1");
  EXPECT_EQ(detail::number_text(static_cast<double>(0.1F)), "0.10000000149011612");
  EXPECT_EQ(detail::number_text(std::nan("")), "nan");
}

TEST(ValueText, IsTheShortestThatReadsBack) {
  EXPECT_EQ(detail::value_text(1.0000001), "1.0000001");
  EXPECT_EQ(detail::value_text(1.0), "1");
  EXPECT_EQ(detail::value_text(-1e-31), "-1e-31");
  EXPECT_EQ(detail::value_text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(detail::value_text(std::nan("")), "NaN");
}

}  // namespace
}  // namespace topksoftmax
