// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/divided_bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "certified/made_up_bounds.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kPart = detail::kDividedAtOnce;

class DividedBounds : public testing::MadeUpBounds {
 protected:
  /// Divides so many bounds at a threshold, on a crew of so many threads.
  kernels::Partition divide(std::size_t count, float threshold, std::size_t threads = 1) {
    ids_.assign(detail::divided_room(count), -1);
    return detail::divide_bounds(bounded(threads), {estimates_.data(), radii_.data(), count}, threshold,
                                 ids_.data());
  }

  /// What a kernel makes of all of them at once.
  kernels::Partition at_once(std::size_t count, float threshold) {
    expected_.assign(count + kernels::kSlack, -1);
    std::vector<float> estimates = estimates_;
    std::vector<float> radii = radii_;
    if (const LogitTransform& transform = layer_.transform(); !transform.is_identity()) {
      kernels::transform_bounds(transform, estimates_.data(), radii_.data(), count, estimates.data(),
                                radii.data());
    }
    return kernels::partition(estimates.data(), radii.data(), count, threshold, expected_.data());
  }

  void SetUp() override {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0F, 3.0F);
    for (float& estimate : estimates_) estimate = normal(random);
    for (float& radius : radii_) radius = 0.1F * std::abs(normal(random));
  }

  std::vector<float> estimates_ = std::vector<float>(9 * kPart + 5);
  std::vector<float> radii_ = std::vector<float>(estimates_.size());
  std::vector<TokenId> ids_;
  std::vector<TokenId> expected_;
};

TEST_F(DividedBounds, AreThoseOfOneKernelWhateverTheParts) {
  for (const std::size_t count : {std::size_t{1}, kPart - 1, kPart, kPart + 1, 3 * kPart, 9 * kPart + 5}) {
    for (const float threshold : {-100.0F, 0.0F, 6.0F, 100.0F}) {
      SCOPED_TRACE(std::to_string(count) + " at " + std::to_string(threshold));
      const kernels::Partition expected = at_once(count, threshold);
      const kernels::Partition divided = divide(count, threshold);
      ASSERT_EQ(divided.reaching, expected.reaching);
      EXPECT_TRUE(std::equal(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(divided.reaching),
                             expected_.begin()));
      EXPECT_NEAR(divided.rest.high, expected.rest.high, 1e-12 * expected.rest.high);
      EXPECT_LE(divided.rest.low, divided.rest.high);
    }
  }
}

TEST_F(DividedBounds, AreTheSameBitsForEveryCrew) {
  const std::size_t count = estimates_.size();
  const kernels::Partition alone = divide(count, 4.0F);
  const std::vector<TokenId> ids(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(alone.reaching));
  EXPECT_GT(alone.reaching, 100U);
  for (const std::size_t threads : {2U, 3U, 4U}) {
    const kernels::Partition shared = divide(count, 4.0F, threads);
    ASSERT_EQ(shared.reaching, alone.reaching);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), ids_.begin()));
    EXPECT_EQ(shared.rest.low, alone.rest.low);
    EXPECT_EQ(shared.rest.high, alone.rest.high);
  }
}

TEST_F(DividedBounds, SumNothingWhereNoProbabilitiesAreAskedFor) {
  query_.probabilities = false;
  const kernels::Partition divided = divide(estimates_.size(), 4.0F);
  EXPECT_EQ(divided.reaching, at_once(estimates_.size(), 4.0F).reaching);
  EXPECT_EQ(divided.rest.high, 0.0);
}

TEST_F(DividedBounds, FollowTheLayersTransform) {
  layer_ = layer_.with({.scale = 0.5F, .soft_cap = 4.0F});
  const kernels::Partition expected = at_once(estimates_.size(), 1.5F);
  const kernels::Partition divided = divide(estimates_.size(), 1.5F);
  EXPECT_EQ(divided.reaching, expected.reaching);
  EXPECT_NEAR(divided.rest.high, expected.rest.high, 1e-12 * expected.rest.high);
}

}  // namespace
}  // namespace topksoftmax
