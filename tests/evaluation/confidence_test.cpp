// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/confidence.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

namespace topksoftmax {
namespace {

TEST(MeanLowerBound, OfAMeanOfOneIsThePowerOfWhatIsLeft) {
  EXPECT_NEAR(mean_lower_bound(1.0, 100, 0.95), std::pow(0.05, 0.01), 1e-12);  // 0.9705
  EXPECT_NEAR(mean_lower_bound(1.0, 1, 0.95), 0.05, 1e-12);
}

TEST(MeanLowerBound, HasTheRelativeEntropyThatItIsAllowed) {
  // KL(1/2 ‖ p) = ln(1/(4p(1 − p)))/2: n = 2 and a confidence of 1 − 4·(1/10)·(9/10) give p = 1/10.
  EXPECT_NEAR(mean_lower_bound(0.5, 2, 1.0 - 0.36), 0.1, 1e-12);
  const double p = mean_lower_bound(0.99, 4000, 0.95);
  const double divergence = 0.99 * std::log(0.99 / p) + 0.01 * std::log(0.01 / (1.0 - p));
  EXPECT_NEAR(4000 * divergence, std::log(20.0), 1e-6);
  EXPECT_GT(p, 0.98);
  EXPECT_LT(p, 0.99);
}

TEST(MeanLowerBound, OfAMeanOfZeroIsZero) {
  EXPECT_EQ(mean_lower_bound(0.0, 10, 0.95), 0.0);
}

TEST(MeanLowerBound, RisesWithValuesAndFallsWithConfidence) {
  double before = 0.0;
  for (const std::size_t count : {1U, 10U, 100U, 1000U, 10000U}) {
    const double bound = mean_lower_bound(0.9, count, 0.95);
    EXPECT_GT(bound, before);
    EXPECT_LT(bound, 0.9);
    EXPECT_LT(mean_lower_bound(0.9, count, 0.99), bound);
    before = bound;
  }
}

TEST(MeanLowerBound, HoldsAsOftenAsItSays) {
  std::mt19937 engine(1);
  constexpr int kSamples = 2000;
  constexpr int kValues = 200;
  int wrong = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    int sum = 0;
    for (int i = 0; i < kValues; ++i) sum += engine() % 100 < 97 ? 1 : 0;
    if (mean_lower_bound(sum / double{kValues}, kValues, 0.9) > 0.97) ++wrong;
  }
  EXPECT_LE(wrong, kSamples / 10);
}

TEST(MeanLowerBound, RefusesWhatHasNone) {
  EXPECT_THROW(mean_lower_bound(1.1, 10, 0.95), std::invalid_argument);
  EXPECT_THROW(mean_lower_bound(-0.1, 10, 0.95), std::invalid_argument);
  EXPECT_THROW(mean_lower_bound(std::numeric_limits<double>::quiet_NaN(), 10, 0.95), std::invalid_argument);
  EXPECT_THROW(mean_lower_bound(0.9, 0, 0.95), std::invalid_argument);
  EXPECT_THROW(mean_lower_bound(0.9, 10, 0.0), std::invalid_argument);
  EXPECT_THROW(mean_lower_bound(0.9, 10, 1.0), std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
