// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/check_query.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <stdexcept>
#include <vector>

namespace topksoftmax {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(CheckContext, FindsWhatIsNotFiniteWhereverItStands) {
  for (const std::size_t dim : {1U, 2U, 15U, 16U, 17U, 67U}) {
    for (std::size_t j = 0; j < dim; ++j) {
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        std::vector<float> h(dim, 0.5F);
        h[j] = bad;
        EXPECT_THROW(detail::check_context(h.data(), dim), std::invalid_argument) << dim << ' ' << j;
      }
    }
  }
}

// Their squares are not.
TEST(CheckContext, TakesAllFiniteValues) {
  for (const float value : {0.0F, 1e-45F, 1e20F, kLargest, -kLargest}) {
    const std::vector<float> h(67, value);
    EXPECT_NO_THROW(detail::check_context(h.data(), h.size())) << value;
  }
  std::vector<float> h(67, kLargest);
  h[66] = kNan;
  EXPECT_THROW(detail::check_context(h.data(), h.size()), std::invalid_argument);
}

TEST(CheckTemperature, SaysWhichValueItRefuses) {
  EXPECT_NO_THROW(detail::check_temperature("asked", 1e-30));
  try {
    detail::check_temperature("asked", 1e-31);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "asked: temperature is 1e-31; it must be from 1e-30 to 1e30");
  }
  EXPECT_STREQ(detail::unusable_error("asked", -1e-9, "above 0").what(),
               "asked: error is -1e-09; it must be above 0");
}

}  // namespace
}  // namespace topksoftmax
