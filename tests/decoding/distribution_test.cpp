// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/distribution.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "support/statistics.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

TEST(Distribution, DividesByTheSum) {
  const Distribution all = Distribution::of_all({1.0, 0.0, 3.0});
  EXPECT_DOUBLE_EQ(all[0], 0.25);
  EXPECT_DOUBLE_EQ(all[1], 0.0);
  EXPECT_DOUBLE_EQ(all[2], 0.75);
  EXPECT_DOUBLE_EQ(all[3], 0.0);
  const Distribution some = Distribution::of_some({4, 9}, {1.0, 1.0});
  EXPECT_DOUBLE_EQ(some[4], 0.5);
  EXPECT_DOUBLE_EQ(some[9], 0.5);
  EXPECT_DOUBLE_EQ(some[5], 0.0);
  EXPECT_EQ(some.id(1), 9);
  EXPECT_DOUBLE_EQ(Distribution::certain(7)[7], 1.0);
}

TEST(Distribution, KeepsRatiosOfTheSmallestWeights) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const Distribution one = Distribution::of_all({tiny, 3.0 * tiny});
  EXPECT_DOUBLE_EQ(one[0], 0.25);
  EXPECT_DOUBLE_EQ(one[1], 0.75);
}

TEST(Distribution, RefusesWhatIsNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(Distribution::of_all({}), Error);
  EXPECT_THROW(Distribution::of_all({0.0, 0.0}), Error);
  EXPECT_THROW(Distribution::of_all({1.0, -0.5}), Error);
  EXPECT_THROW(Distribution::of_all({1.0, nan}), Error);
  EXPECT_THROW(Distribution::of_all({1.0, HUGE_VAL}), Error);
  EXPECT_THROW(Distribution::of_some({1, 1}, {1.0, 1.0}), Error);
  EXPECT_THROW(Distribution::of_some({2, 1}, {1.0, 1.0}), Error);
  EXPECT_THROW(Distribution::of_some({-1, 1}, {1.0, 1.0}), Error);
  EXPECT_THROW(Distribution::of_some({1}, {1.0, 1.0}), Error);
}

TEST(Distribution, RefusesToDrawWhereItWasNeverAssignedTo) {
  EXPECT_THROW(Distribution().draw(0.5), Error);
}

TEST(Distribution, DrawsByTheCumulativeSum) {
  const Distribution one = Distribution::of_some({2, 5, 6}, {0.25, 0.5, 0.25});
  EXPECT_EQ(one.draw(0.0), 2);
  EXPECT_EQ(one.draw(0.2499), 2);
  EXPECT_EQ(one.draw(0.25), 5);
  EXPECT_EQ(one.draw(0.7499), 5);
  EXPECT_EQ(one.draw(0.75), 6);
  EXPECT_EQ(one.draw(std::nextafter(1.0, 0.0)), 6);
}

TEST(Distribution, NeverDrawsATokenWithoutProbability) {
  for (const std::size_t size : {3U, 64U, 65U, 200U, 1000U}) {
    std::vector<double> weights(size, 0.0);
    weights[1] = 1.0;
    const Distribution one = Distribution::of_all(weights);
    for (const double u : {0.0, 0.5, std::nextafter(1.0, 0.0)}) EXPECT_EQ(one.draw(u), 1);
    weights[1] = 0.0;
    weights[size - 1] = 0.3;
    const Distribution last = Distribution::of_all(weights);
    for (const double u : {0.0, 0.5, std::nextafter(1.0, 0.0)}) {
      EXPECT_EQ(last.draw(u), static_cast<TokenId>(size - 1));
    }
  }
}

TEST(Distribution, DrawsAsOftenAsProbable) {
  std::vector<double> weights(300);
  std::iota(weights.begin(), weights.end(), 0.0);
  const Distribution one = Distribution::of_all(weights);
  RandomStream random(3);
  std::vector<std::size_t> counts(weights.size());
  for (int i = 0; i < 300000; ++i) ++counts[static_cast<std::size_t>(one.draw(random.uniform()))];
  EXPECT_LT(testing::chi_square_deviations(counts, one.probabilities()), 4.0);
}

TEST(RandomStream, GivesTheSameNumbersEverywhere) {
  RandomStream random(1);
  EXPECT_DOUBLE_EQ(random.uniform(), 0.13387664401253274);
  RandomStream other(1);
  RandomStream third(2);
  EXPECT_DOUBLE_EQ(other.uniform(), 0.13387664401253274);
  EXPECT_NE(third.uniform(), 0.13387664401253274);
}

}  // namespace
}  // namespace topksoftmax
