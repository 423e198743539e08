// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

using kernels::detail::Implementation;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// What bounds are held against: they must lie outside, but not far outside.
struct ReferenceSums {
  double low = 0.0;   ///< Σ exp(estimate − radius − shift)
  double high = 0.0;  ///< Σ exp(estimate + radius − shift)
  double largest_radius = 0.0;

  void add(float estimate, float radius, float shift) {
    const double x = static_cast<double>(estimate) - static_cast<double>(shift);
    low += std::exp(x - static_cast<double>(radius));
    high += std::exp(x + static_cast<double>(radius));
    largest_radius = std::max(largest_radius, static_cast<double>(radius));
  }

  void expect_held_by(const kernels::SumBounds& sums) const {
    EXPECT_LE(sums.low, low * (1.0 + 1e-12));
    EXPECT_GE(sums.high, high * (1.0 - 1e-12));
    EXPECT_GE(sums.low, high * std::exp(-2.0 * largest_radius) / 1.08);
    EXPECT_LE(sums.high, high * 1.08 + 1e-30);
  }
};

class BoundedKernels : public ::testing::TestWithParam<Implementation> {};

TEST_P(BoundedKernels, ReachingKeepsTiesAndWhatIsNoNumber) {
  std::vector<float> estimates(70, 0.0F);
  const std::vector<float> radii(70, 1.0F);
  estimates[3] = 1.0F;
  estimates[40] = std::numeric_limits<float>::quiet_NaN();
  estimates[68] = 5.0F;
  estimates[69] = 0.99F;
  std::vector<TokenId> ids(70 + kernels::kSlack);
  ASSERT_EQ(GetParam().reaching(estimates.data(), radii.data(), 70, 2.0F, ids.data()), 3U);
  EXPECT_EQ(ids[0], 3);
  EXPECT_EQ(ids[1], 40);
  EXPECT_EQ(ids[2], 68);
}

/// The rows of forbidden tokens have no bounds, whatever kind of words the mask has.
template <class Word>
void expect_left_out(const Implementation& kernel, std::size_t count) {
  constexpr std::size_t kBits = 8 * sizeof(Word);
  constexpr std::size_t kVocab = 1003;
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<TokenId> tokens(kVocab);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::shuffle(tokens.begin(), tokens.end(), random);
  tokens.resize(count);
  std::vector<Word> words((kVocab + kBits - 1) / kBits, Word{0});
  std::vector<bool> allowed(kVocab);
  for (std::size_t id = 0; id < kVocab; ++id) {
    allowed[id] = random() % 3 != 0;
    if (allowed[id]) words[id / kBits] |= static_cast<Word>(Word{1} << (id % kBits));
  }
  std::vector<float> estimates(count + 1);
  std::iota(estimates.begin(), estimates.end(), 1.0F);
  std::vector<float> radii(count + 1, 0.5F);
  kernel.leave_out_forbidden(words, tokens.data(), count, estimates.data(), radii.data());
  for (std::size_t i = 0; i <= count; ++i) {
    const bool stays = i == count || allowed[static_cast<std::size_t>(tokens[i])];
    ASSERT_EQ(estimates[i], stays ? static_cast<float>(i + 1) : -kInfinity) << i << " of " << count;
    ASSERT_EQ(radii[i], stays ? 0.5F : 0.0F) << i << " of " << count;
  }
}

TEST_P(BoundedKernels, ForbiddenRowsAreLeftOut) {
  for (const std::size_t count : {0U, 1U, 7U, 15U, 16U, 17U, 500U, 1003U}) {
    expect_left_out<std::uint64_t>(GetParam(), count);
    expect_left_out<std::uint32_t>(GetParam(), count);
    expect_left_out<std::int32_t>(GetParam(), count);
  }
}

TEST_P(BoundedKernels, SumBoundsHoldTheSum) {
  for (const std::size_t count : {1U, 15U, 16U, 1000U, 10007U}) {
    for (const float shift : {0.0F, 30.0F, -40.0F, 5000.0F}) {
      Eigen::VectorXf estimates = testing::random_vector(static_cast<Eigen::Index>(count), 5, 6.0F);
      estimates.array() += shift - 20.0F;
      const Eigen::VectorXf radii =
          testing::random_vector(static_cast<Eigen::Index>(count), 6, shift > 1000.0F ? 0.0F : 0.5F)
              .cwiseAbs();
      ReferenceSums reference;
      for (Eigen::Index i = 0; i < estimates.size(); ++i) reference.add(estimates[i], radii[i], shift);
      reference.expect_held_by(GetParam().sum_exp_bounds(estimates.data(), radii.data(), count, shift));
    }
  }
}

TEST_P(BoundedKernels, SumBoundsHoldWhatLargeShiftsRound) {
  // Floats are 1/8 apart at 2²⁰: one of these upper bounds is rounded down to the shift, the other up by
  // 1/16.
  for (const float radius : {0.0624F, 0.07F}) {
    const std::vector<float> estimates(3, 0x1p20F);
    const std::vector<float> radii(3, radius);
    const kernels::SumBounds sums = GetParam().sum_exp_bounds(estimates.data(), radii.data(), 3, 0x1p20F);
    EXPECT_GE(sums.high, 3.0 * std::exp(static_cast<double>(radius)));
    EXPECT_LE(sums.low, 3.0 * std::exp(-static_cast<double>(radius)));
  }
  const float far = 0x1p24F;
  const float radius = 0.9F;
  const kernels::SumBounds sums = GetParam().sum_exp_bounds(&far, &radius, 1, far);
  EXPECT_LE(sums.low, std::exp(-0.9));
  EXPECT_GE(sums.high, std::exp(0.9));
}

TEST_P(BoundedKernels, WhatIsTooSmallForFloatsProvesNothingFromBelow) {
  const std::vector<float> estimates(100, -200.0F);
  const std::vector<float> radii(100, 0.5F);
  EXPECT_LE(GetParam().sum_exp_bounds(estimates.data(), radii.data(), 100, 0.0F).low,
            100.0 * std::exp(-200.5));
}

TEST_P(BoundedKernels, WhatIsTooLargeForFloatsProvesNothingFromBelow) {
  const std::vector<float> estimates(100, -3.0F);
  for (const float radius : {100.0F, 400.0F, 1e30F, kInfinity}) {
    const std::vector<float> radii(100, radius);
    const kernels::SumBounds sums = GetParam().sum_exp_bounds(estimates.data(), radii.data(), 100, 0.0F);
    EXPECT_GE(sums.low, 0.0) << radius;
    EXPECT_LE(sums.low, 100.0 * std::exp(-3.0)) << radius;
    EXPECT_GE(sums.high, 1e37) << radius;
  }
}

TEST_P(BoundedKernels, PartitionPicksWhatReachesAndSumsTheOthers) {
  for (const std::size_t count : {1U, 15U, 16U, 1000U, 10007U}) {
    Eigen::VectorXf estimates = testing::random_vector(static_cast<Eigen::Index>(count), 7, 6.0F);
    const Eigen::VectorXf radii =
        testing::random_vector(static_cast<Eigen::Index>(count), 8, 0.5F).cwiseAbs();
    if (count > 20) {
      estimates[3] = -kInfinity;
      estimates[17] = kInfinity;
    }
    const float threshold = 4.0F;
    std::vector<TokenId> expected;
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<Eigen::Index>(i);
      if (estimates[at] + radii[at] >= threshold) expected.push_back(static_cast<TokenId>(i));
    }
    std::vector<TokenId> reaching(count + kernels::kSlack);
    reaching.resize(GetParam().reaching(estimates.data(), radii.data(), count, threshold, reaching.data()));
    EXPECT_EQ(reaching, expected);
    std::vector<TokenId> ids(count + kernels::kSlack);
    const kernels::Partition partition =
        GetParam().partition(estimates.data(), radii.data(), count, threshold, ids.data());
    ids.resize(partition.reaching);
    EXPECT_EQ(ids, expected);
    ReferenceSums reference;
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<Eigen::Index>(i);
      if (estimates[at] + radii[at] < threshold) reference.add(estimates[at], radii[at], threshold);
    }
    reference.expect_held_by(partition.rest);
  }
}

TEST_P(BoundedKernels, PromisingIsAllFromSomeValueOn) {
  for (const std::size_t count : {40U, 129U, 1000U, 10007U}) {
    for (const float scale : {1e-6F, 5.0F, 1e6F, 1e36F}) {
      const Eigen::VectorXf values = testing::random_vector(static_cast<Eigen::Index>(count), 9, scale);
      std::vector<float> maxima(kernels::maxima_room(count));
      for (const std::size_t wanted : {1U, 4U, 11U, 79U}) {
        std::vector<TokenId> ids(count + kernels::kSlack);
        ids.resize(GetParam().promising(values.data(), count, wanted, maxima.data(), ids.data()));
        if (wanted > count) {
          EXPECT_TRUE(ids.empty());
          continue;
        }
        ASSERT_GE(ids.size(), wanted);
        EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
        float least = kInfinity;
        for (const TokenId id : ids) least = std::min(least, values[id]);
        EXPECT_EQ(static_cast<std::size_t>((values.array() >= least).count()), ids.size());
        if (count == 10007U) {
          EXPECT_LE(ids.size(), 3 * wanted + 16);
        }
      }
    }
  }
}

TEST_P(BoundedKernels, PromisingTakesWhatEqualsTheCut) {
  const std::vector<float> values = {-9.0F, 0.0F, -0.25F, -7.0F, -8.0F};  // the first cut is a quarter lower
  std::vector<float> maxima(2 * kernels::kSlack);
  std::vector<TokenId> ids(values.size() + kernels::kSlack);
  ASSERT_EQ(GetParam().promising(values.data(), values.size(), 2, maxima.data(), ids.data()), 2U);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(ids[1], 2);
}

TEST_P(BoundedKernels, PromisingPassesOverWhatIsForbidden) {
  std::vector<float> values(4000, -kInfinity);
  std::vector<float> maxima(kernels::maxima_room(4000));
  std::vector<TokenId> ids(4000 + kernels::kSlack);
  EXPECT_EQ(GetParam().promising(values.data(), 4000, 1, maxima.data(), ids.data()), 0U);
  values[1234] = -3.0F;
  values[2345] = 1.0F;
  ASSERT_GE(GetParam().promising(values.data(), 4000, 1, maxima.data(), ids.data()), 1U);
  EXPECT_TRUE(ids[0] == 2345 || ids[1] == 2345);
  EXPECT_EQ(GetParam().promising(values.data(), 4000, 3, maxima.data(), ids.data()), 0U);
  std::fill(values.begin(), values.end(), 2.0F);
  EXPECT_EQ(GetParam().promising(values.data(), 4000, 3, maxima.data(), ids.data()), 4000U);
}

INSTANTIATE_TEST_SUITE_P(
    All, BoundedKernels,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
