// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/split_mix.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace topksoftmax {
namespace {

TEST(UnitInterval, HasItsEndsAndSteps) {
  EXPECT_EQ(detail::unit_interval(0x7FF), 0.0) << "bits that do not count";
  EXPECT_EQ(detail::unit_interval(0x800), 0x1p-53);
  EXPECT_EQ(detail::unit_interval(std::uint64_t{1} << 63), 0.5);
  EXPECT_EQ(detail::unit_interval(~std::uint64_t{0}), 1.0 - 0x1p-53);
}

}  // namespace
}  // namespace topksoftmax
