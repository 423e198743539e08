// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/guarded.hpp"
#include "support/layers.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"

namespace topksoftmax {
namespace {

using kernels::CodeContext;
using kernels::detail::Implementation;
using testing::Guarded;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class Rounding : public ::testing::TestWithParam<Implementation> {
 protected:
  const Implementation& kernel() const { return GetParam(); }
};

TEST_P(Rounding, HalvesGoAwayFromZeroAndNothingBeyondTheLargest) {
  const std::vector<float> x = {0.0F,  -0.0F, 0.5F,  -0.5F,  0.49F,     1.5F,       -2.5F, 99.4F,
                                99.6F, -1e9F, 3e38F, -3e38F, kInfinity, -kInfinity, kNaN,  1e-40F};
  const std::vector<int> expected = {0, 0, 1, -1, 0, 2, -3, 99, 100, -100, 100, -100, 100, -100, -100, 0};
  // Wherever they lie in a vector.
  for (std::size_t skipped = 0; skipped < x.size(); ++skipped) {
    const Guarded<float> values(std::span<const float>(x).subspan(skipped));
    Guarded<std::int16_t> n(values.size());
    kernel().round_to_shorts(values.data(), values.size(), 1.0F, 100.0F, n.data());
    for (std::size_t j = 0; j < n.size(); ++j) EXPECT_EQ(n[j], expected[skipped + j]) << values[j];
  }
}

TEST_P(Rounding, TheLargestMagnitudeIsFoundAnywhere) {
  for (const std::size_t count : {1U, 7U, 16U, 33U}) {
    for (std::size_t at = 0; at < count; ++at) {
      for (const float largest : {3.0F, -3.0F, 1e-42F, -3e38F}) {
        std::vector<float> x(count, 1e-43F);
        x[at] = largest;
        EXPECT_EQ(kernel().largest_magnitude(x.data(), count), std::abs(largest));
        if (count == 1) continue;
        x[(at + 1) % count] = kNaN;
        EXPECT_EQ(kernel().largest_magnitude(x.data(), count), std::abs(largest));
      }
    }
  }
}

TEST_P(Rounding, ASegmentTellsHowMuchIsLost) {
  constexpr std::size_t kSegment = CodeContext::kSegment;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const Eigen::VectorXf random = testing::random_vector(kSegment, seed, 40.0F);
    const Guarded<float> x(std::span<const float>(random.data(), kSegment));
    const float inverse = 1.7F;
    Guarded<std::int8_t> n(kSegment);
    const float lost = kernel().round_segment(x.data(), inverse, n.data());
    double squares = 0.0;
    for (std::size_t j = 0; j < kSegment; ++j) {
      const auto quotient = static_cast<double>(x[j] * inverse);
      ASSERT_EQ(n[j], std::lround(std::clamp(quotient, -127.0, 127.0))) << quotient;
      squares += (quotient - n[j]) * (quotient - n[j]);
    }
    EXPECT_NEAR(lost, squares, std::ldexp(squares, -18));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Rounding,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
