// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/finite.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace topksoftmax {
namespace {

TEST(FirstNotFinite, IsFoundWhereverItIs) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::size_t count : {1U, 15U, 16U, 40U}) {
    std::vector<float> values(count, std::numeric_limits<float>::max());
    EXPECT_TRUE(detail::all_finite(values.data(), count));
    EXPECT_EQ(detail::first_not_finite(values.data(), count), count);
    for (std::size_t i = count; i-- > 0;) {
      values[i] = i % 3 == 0 ? std::nanf("") : i % 3 == 1 ? infinity : -infinity;
      EXPECT_FALSE(detail::all_finite(values.data(), count));
      EXPECT_EQ(detail::first_not_finite(values.data(), count), i);
    }
  }
  EXPECT_EQ(detail::first_not_finite(nullptr, 0), 0U);
}

}  // namespace
}  // namespace topksoftmax
