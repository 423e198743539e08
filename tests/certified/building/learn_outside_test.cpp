// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/building/learn_outside.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

#include "topksoftmax/certified/outside_estimate.hpp"
#include "topksoftmax/certified/outside_features.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/learning/outside_sample.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::detail {
namespace {

TEST(FeaturesFor, AreThoseOfTheLeadingCoordinatesFirst) {
  EXPECT_EQ(features_for(100, 64).coordinates(), 5U);  // 25 features: 5 + 15 + 2; six take 29
  EXPECT_EQ(features_for(4 * 154, 64).coordinates(), 16U);
  EXPECT_EQ(features_for(16 * 154, 64).coordinates(), 16U);
  EXPECT_EQ(features_for(16 * 155, 64).coordinates(), 17U);
  EXPECT_EQ(features_for(100'000, 64).coordinates(), 64U);
  EXPECT_EQ(features_for(100'000, 8).coordinates(), 8U);
}

/// A sample of bounds alone, 0 and 2, between which what is outside lies at 1, but in contexts that are held
/// out at `held_out`.
OutsideSample sample_of_bounds(double held_out) {
  constexpr std::size_t kContexts = 250;
  OutsideSample sample(RowMajorMatrix(kContexts, 2));
  for (std::size_t i = 0; i < kContexts; ++i) {
    sample.contexts.row(static_cast<Eigen::Index>(i)) << 0.0F, 2.0F;
    sample.take(i, 0, {.inside = 0.0, .outside = fifth_of(i, kContexts) == 4 ? held_out : 1.0});
  }
  return sample;
}

TEST(LearnedOutside, IsWorthKeepingWhereItIsAsGoodAsThePositionInContextsHeldOut) {
  OutsideEstimate estimate;
  estimate.features = OutsideFeatures(0);
  for (const double position : {0.0, 0.5, 0.9}) {
    estimate.position = position;
    for (const double held_out : {0.1, 1.0, 1.9}) {
      const OutsideSample sample = sample_of_bounds(held_out);
      const auto learned = fit_outside_mass(sample, 1, SerialExecutor());
      ASSERT_TRUE(learned);
      const bool as_good = std::abs(held_out - 1.0) <= std::abs(held_out - 2.0 * position);
      EXPECT_EQ(is_worth_keeping(*learned, estimate, sample), as_good) << position << " " << held_out;
    }
  }
}

}  // namespace
}  // namespace topksoftmax::detail
