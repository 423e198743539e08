// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/outside_features.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

namespace topksoftmax::detail {
namespace {

std::vector<float> features_of(std::size_t coordinates, double low, double high) {
  const std::array<float, 3> of_context = {2.0F, 3.0F, 5.0F};
  const OutsideFeatures features(coordinates);
  std::vector<float> values(features.count());
  features.put(of_context.data(), low, high, values.data());
  return values;
}

TEST(OutsideFeatures, AreCoordinatesTheirProductsAndTheBounds) {
  EXPECT_THAT(features_of(3, -1.0, 7.0),
              ::testing::ElementsAre(2.0F, 3.0F, 5.0F, 4.0F, 6.0F, 10.0F, 9.0F, 15.0F, 25.0F, -1.0F, 7.0F));
  EXPECT_THAT(features_of(2, -1.0, 7.0), ::testing::ElementsAre(2.0F, 3.0F, 4.0F, 6.0F, 9.0F, -1.0F, 7.0F));
}

TEST(OutsideFeatures, SayNothingOfALowerBoundThatSaysNothing) {
  EXPECT_THAT(features_of(1, -1e300, 7.0), ::testing::ElementsAre(2.0F, 4.0F, -33.0F, 7.0F));
}

TEST(OutsideFeatures, PairOnlyTheLeadingCoordinates) {
  EXPECT_EQ(OutsideFeatures(16).count(), 16U + 136 + 2);
  EXPECT_EQ(OutsideFeatures(17).count(), 17U + 136 + 2);
}

TEST(OutsideFeatures, AreOfAsManyCoordinatesAsFit) {
  EXPECT_EQ(OutsideFeatures::at_most(0, 100).coordinates(), 0U);
  EXPECT_EQ(OutsideFeatures::at_most(153, 100).coordinates(), 15U);
  EXPECT_EQ(OutsideFeatures::at_most(154, 100).coordinates(), 16U);
  EXPECT_EQ(OutsideFeatures::at_most(160, 100).coordinates(), 22U);
  EXPECT_EQ(OutsideFeatures::at_most(1000, 100).coordinates(), 100U);
}

}  // namespace
}  // namespace topksoftmax::detail
