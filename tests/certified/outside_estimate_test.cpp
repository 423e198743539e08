// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/outside_estimate.hpp"

#include <gtest/gtest.h>

namespace topksoftmax {
namespace {

TEST(PlaceOfSize, IsByTheLogarithmOfK) {
  using detail::OutsideOf;
  using detail::PlaceOfSize;
  const auto expect = [](const PlaceOfSize& place, OutsideOf size, double to_next) {
    EXPECT_EQ(place.size, size);
    EXPECT_NEAR(place.to_next, to_next, 1e-12);
  };
  expect(PlaceOfSize(1, 9, 5000), OutsideOf::fewest, 0.0);
  expect(PlaceOfSize(3, 9, 5000), OutsideOf::fewest, 0.5);
  expect(PlaceOfSize(9, 9, 5000), OutsideOf::expected, 0.0);
  expect(PlaceOfSize(18, 9, 5000), OutsideOf::expected, 1.0 / 3.0);
  expect(PlaceOfSize(72, 9, 5000), OutsideOf::many, 0.0);
  expect(PlaceOfSize(1000, 9, 5000), OutsideOf::many, 0.0);
  expect(PlaceOfSize(1, 1, 5000), OutsideOf::expected, 0.0);
  // A small layer's models are of no more than all its tokens.
  expect(PlaceOfSize(18, 9, 36), OutsideOf::expected, 0.5);
  expect(PlaceOfSize(36, 9, 36), OutsideOf::many, 0.0);
  expect(PlaceOfSize(6, 100, 36), OutsideOf::fewest, 0.5);
  expect(PlaceOfSize(1, 9, 1), OutsideOf::many, 0.0);
}

TEST(OutsideEstimate, IsAtItsPlaceBetweenTheBounds) {
  detail::OutsideEstimate estimate;
  EXPECT_EQ(estimate.between(2.0, 4.0), 3.0) << "in the middle where nothing is known";
  estimate.position = 0.25;
  EXPECT_EQ(estimate.between(2.0, 4.0), 2.5);
  EXPECT_EQ(estimate.between(4.0, 4.0), 4.0);
  EXPECT_EQ(estimate.between(-1e6, 4.0), 4.0 - 0.75 * detail::OutsideFeatures::kWidest);
  EXPECT_FALSE(estimate.error());
  EXPECT_EQ(estimate.bytes(), 0U);
}

}  // namespace
}  // namespace topksoftmax
