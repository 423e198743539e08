// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/context_rounding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "support/layers.hpp"

namespace topksoftmax {
namespace {

using kernels::CodeContext;

/// A context's coordinates, and what rounding has made of them.
struct Rounded {
  explicit Rounded(const std::vector<float>& x)
      : n(x.size()), shifts(x.size() / CodeContext::kSegment), kept(x.size()) {
    const detail::RoundedToSegments made =
        detail::round_to_segments(x.data(), x.size(), n.data(), shifts.data());
    lost = made.lost;
    // The step is the last segment's, and twice as long before each shift.
    auto step = static_cast<long double>(made.scale);
    for (std::size_t segment = shifts.size(); segment-- > 0;) {
      for (std::size_t j = segment * CodeContext::kSegment; j < (segment + 1) * CodeContext::kSegment; ++j) {
        kept[j] = step * static_cast<long double>(n[j]);
      }
      step = std::ldexp(step, shifts[segment]);
    }
    long double square = 0.0L;
    for (std::size_t j = 0; j < x.size(); ++j) {
      square += (static_cast<long double>(x[j]) - kept[j]) * (static_cast<long double>(x[j]) - kept[j]);
    }
    off = static_cast<double>(std::sqrt(square));
  }

  std::vector<std::int8_t> n;
  std::vector<std::uint8_t> shifts;
  std::vector<long double> kept;
  double lost = 0.0;  ///< as it is bounded
  double off = 0.0;   ///< and as it is
};

std::vector<float> random_values(std::size_t count, unsigned seed) {
  const Eigen::VectorXf x = testing::random_vector(static_cast<Eigen::Index>(count), seed);
  return {x.begin(), x.end()};
}

TEST(CodeContexts, WhatRoundingLosesIsBounded) {
  for (const std::size_t width : {32U, 96U, 1024U}) {
    for (unsigned seed = 0; seed < 50; ++seed) {
      std::vector<float> x = random_values(width, seed);
      // Segments of every size, in any order.
      for (std::size_t j = 0; j < width; ++j) x[j] *= std::exp2(static_cast<float>((j / 32 * 7 + seed) % 9));
      const Rounded rounded(x);
      ASSERT_GE(rounded.lost, rounded.off);
      ASSERT_LE(rounded.lost, 1.01 * rounded.off + 1e-3 * std::abs(rounded.off));
    }
  }
}

// Where the quotients come out whole, their own rounding is all that is lost.
TEST(CodeContexts, QuotientsAreRoundedToo) {
  for (unsigned peak = 1; peak < 200; ++peak) {
    std::vector<float> x(32);
    const float largest = 1.0F + static_cast<float>(peak) / 997.0F;
    for (std::size_t j = 0; j < x.size(); ++j) x[j] = largest * (static_cast<float>(4 * j + 3) / 127.0F);
    x[31] = largest;
    const Rounded rounded(x);
    ASSERT_GE(rounded.lost, rounded.off) << largest;
  }
}

TEST(CodeContexts, WhatIsTooShortToBeRoundedIsLostWhole) {
  std::vector<float> x = random_values(64, 1);
  for (float& value : x) value *= 1e-27F;
  const Rounded rounded(x);
  ASSERT_TRUE(std::all_of(rounded.n.begin(), rounded.n.end(), [](std::int8_t n) { return n == 0; }));
  EXPECT_GT(rounded.off, 0.0);
  EXPECT_GE(rounded.lost, rounded.off);
}

TEST(CodeContexts, ProductsStayWithinTheirIntegers) {
  for (const std::size_t width : {32U, 256U, 4096U, 16384U}) {
    std::vector<float> x = random_values(width, 2);
    for (std::size_t j = 0; j < width; ++j) {  // each segment half as long as the one before
      x[j] = std::copysign(std::exp2(-static_cast<float>(std::min<std::size_t>(j / 32, 20))), x[j]);
    }
    const Rounded rounded(x);
    // What 240·Σ|n_j| of either half of the coordinates comes to when all shifts are done.
    std::int64_t sums[] = {0, 0};
    for (std::size_t segment = 0; segment < rounded.shifts.size(); ++segment) {
      for (std::int64_t& sum : sums) sum <<= rounded.shifts[segment];
      for (std::size_t j = 0; j < CodeContext::kSegment; ++j) {
        sums[j % 2] += std::abs(rounded.n[segment * CodeContext::kSegment + j]);
      }
    }
    EXPECT_LE(240 * std::max(sums[0], sums[1]), std::int64_t{1} << 31) << width;
  }
}

}  // namespace
}  // namespace topksoftmax
