// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/number_text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

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

TEST(NumberOf, IsAllOfTheText) {
  EXPECT_EQ(detail::number_of<std::size_t>("17"), 17U);
  EXPECT_EQ(detail::number_of<int>("-3"), -3);
  EXPECT_EQ(detail::number_of<double>("1e-3"), 1e-3);
  for (const char* text : {"", " 1", "1 ", "+1", "1.5", "-1", "99999999999999999999", "one"}) {
    EXPECT_EQ(detail::number_of<std::size_t>(text), std::nullopt) << text;
  }
  for (const char* text : {"", "1e99", "0.5x", "0,5"}) {
    EXPECT_EQ(detail::number_of<float>(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace topksoftmax
