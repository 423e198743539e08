// SPDX-License-Identifier: Apache-2.0
#include "harness/measuring/peak_memory.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace topksoftmax::bench {
namespace {

double hold(std::size_t bytes) {
  std::vector<double> values(bytes / sizeof(double));
  std::iota(values.begin(), values.end(), 0.0);
  return values.back();
}

TEST(PeakMemory, CountsWhatHasBeenFreedToo) {
  constexpr std::size_t kLarge = std::size_t{96} << 20U;
  constexpr double kSlack = 16e6;  // what the process does besides
  EXPECT_GT(hold(2 * kLarge), 0.0);
  const PeakMemory memory;
  if (std::isnan(memory.growth())) GTEST_SKIP() << "this system does not tell";
  EXPECT_LT(memory.growth(), kSlack);
  EXPECT_GT(hold(kLarge), 0.0);
  EXPECT_NEAR(memory.growth(), static_cast<double>(kLarge), kSlack);
}

}  // namespace
}  // namespace topksoftmax::bench
