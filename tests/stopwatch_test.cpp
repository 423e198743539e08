// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/stopwatch.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace topksoftmax {
namespace {

TEST(Stopwatch, AddsItsLifetime) {
  constexpr double kBefore = 1000.0;
  double seconds = kBefore;
  const auto start = std::chrono::steady_clock::now();
  {
    const Stopwatch watch(seconds);
    while (seconds_since(start) <= 0.0) {
    }
    EXPECT_EQ(seconds, kBefore) << "it is added in the end";
  }
  EXPECT_GT(seconds, kBefore);
  EXPECT_LE(seconds - kBefore, seconds_since(start) + 1e-9);
}

}  // namespace
}  // namespace topksoftmax
