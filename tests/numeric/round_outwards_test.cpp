// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/round_outwards.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace topksoftmax {
namespace {

TEST(RoundOutwards, UpIsTheLeastThatIsNotBelow) {
  std::mt19937_64 engine(1);
  std::lognormal_distribution<double> any(0.0, 20.0);
  for (int round = 0; round < 10000; ++round) {
    const double x = any(engine);
    const float rounded = detail::up(x);
    ASSERT_GE(static_cast<double>(rounded), x);
    ASSERT_LT(static_cast<double>(std::nextafter(rounded, 0.0F)), x);
    const std::uint16_t bits = detail::bfloat16_up(x);
    ASSERT_GE(detail::bfloat16_value(bits), x);
    ASSERT_LT(detail::bfloat16_value(static_cast<std::uint16_t>(bits - 1)), x);
  }
  EXPECT_EQ(detail::up(1.5), 1.5F);
  EXPECT_EQ(detail::up(0.0), 0.0F);
  EXPECT_GT(detail::up(1e-60), 0.0F);
  EXPECT_EQ(detail::bfloat16_value(detail::bfloat16_up(1.5)), 1.5);
  EXPECT_EQ(detail::up(1e39), std::numeric_limits<float>::infinity());
}

TEST(RoundOutwards, RoundingsAreNotFewerThanCounted) {
  for (const std::size_t n : {1U, 10U, 4096U}) {
    const double worst = std::pow(1.0 + 0x1p-24, static_cast<double>(n)) - 1.0;
    EXPECT_GE(detail::roundings(n), worst);
  }
}

}  // namespace
}  // namespace topksoftmax
