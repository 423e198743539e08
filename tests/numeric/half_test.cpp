// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace topksoftmax {
namespace {

using detail::Float16;

/// What IEEE 754 says that a finite half is.
double value_of(std::uint32_t bits) {
  const std::uint32_t exponent = (bits >> 10U) & 31U;
  const auto fraction = static_cast<double>(bits & 1023U);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24)
                                         : std::ldexp(1024.0 + fraction, static_cast<int>(exponent) - 25);
  return (bits & 0x8000U) == 0 ? magnitude : -magnitude;
}

void expect_all_halves() {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto found = static_cast<float>(Float16{static_cast<std::uint16_t>(bits)});
    ASSERT_EQ(std::signbit(found), (bits & 0x8000U) != 0) << bits;
    if ((bits & 0x7c00U) != 0x7c00U) {
      ASSERT_EQ(static_cast<double>(found), value_of(bits)) << bits;
    } else if ((bits & 0x3ffU) == 0) {
      ASSERT_TRUE(std::isinf(found)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(found)) << bits;
    }
  }
}

TEST(Float16, IsWhatIeee754Says) {
  expect_all_halves();
}

#if defined(__SSE2__)
TEST(Float16, IsThatOnAThreadThatTakesSubnormalNumbersForZero) {
  constexpr unsigned kFlushToZero = 0x8000U;
  constexpr unsigned kDenormalsAreZero = 0x0040U;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushToZero | kDenormalsAreZero);
  expect_all_halves();
  _mm_setcsr(before);
}
#endif

}  // namespace
}  // namespace topksoftmax
