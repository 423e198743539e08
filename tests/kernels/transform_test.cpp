// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {
namespace {

using kernels::detail::Implementation;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

const std::vector<LogitTransform>& transforms() {
  static const std::vector<LogitTransform> all = {{.scale = 0.0625F},
                                                  {.scale = 3.0F},
                                                  {.soft_cap = 30.0F},
                                                  {.scale = 0.3F, .soft_cap = 5.0F},
                                                  {.scale = 1e9F},
                                                  {.scale = 1e-9F},
                                                  {.soft_cap = 1e-9F},
                                                  {.soft_cap = 1e9F},
                                                  {.scale = 1e9F, .soft_cap = 1e-9F},
                                                  {.scale = 1e-9F, .soft_cap = 1e9F}};
  return all;
}

/// Products of every size and sign, many of them near each other.
std::vector<float> products() {
  std::vector<float> all = {0.0F, -0.0F, 1e-45F, -1e-45F, 1e-38F, kLargest, -kLargest, 3e38F};
  for (float x = 1e-12F; x < 1e12F; x *= 1.37F) all.insert(all.end(), {x, -x});
  const Eigen::VectorXf some = testing::random_vector(3000, 7, 20.0F);
  all.insert(all.end(), some.begin(), some.end());
  return all;
}

/// In float64, as a model's own code writes it.
double transformed(const LogitTransform& transform, float product) {
  const double scaled = static_cast<double>(product) * static_cast<double>(transform.scale);
  const auto cap = static_cast<double>(transform.soft_cap);
  const double logit = transform.soft_cap == 0.0F ? scaled : cap * std::tanh(scaled / cap);
  return std::clamp(logit, -static_cast<double>(kLargest), static_cast<double>(kLargest));
}

class TransformKernels : public ::testing::TestWithParam<Implementation> {};

TEST_P(TransformKernels, LogitsAreThoseOfTheModelWithinTheStatedError) {
  const std::vector<float> all = products();
  for (const LogitTransform& transform : transforms()) {
    std::vector<float> logits = all;
    GetParam().transform(transform, logits.data(), logits.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double expected = transformed(transform, all[i]);
      EXPECT_NEAR(logits[i], expected,
                  static_cast<double>(kernels::kTransformError) * std::abs(expected) +
                      static_cast<double>(kernels::kTransformLoss))
          << all[i] << " scaled by " << transform.scale << ", capped at " << transform.soft_cap;
    }
  }
}

TEST_P(TransformKernels, ALogitDoesNotDependOnItsPlace) {
  const std::vector<float> all = products();
  const LogitTransform transform = {.scale = 0.7F, .soft_cap = 12.0F};
  std::vector<float> together = all;
  GetParam().transform(transform, together.data(), together.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    float alone = all[i];
    GetParam().transform(transform, &alone, 1);
    EXPECT_EQ(alone, together[i]);
  }
}

TEST_P(TransformKernels, WhatIsForbiddenStaysSo) {
  for (const LogitTransform& transform : transforms()) {
    std::vector<float> logits = {-kInfinity, 1.0F, -kInfinity};
    GetParam().transform(transform, logits.data(), logits.size());
    EXPECT_EQ(logits[0], -kInfinity);
    EXPECT_EQ(logits[2], -kInfinity);
  }
}

TEST_P(TransformKernels, BoundsHoldEveryLogitOfTheProductsBetweenThem) {
  for (const float size : {1.0F, 1e-26F}) {  // of these, some transforms make what floats hold badly
    const Eigen::VectorXf estimates = size * testing::random_vector(2003, 3, 15.0F);
    const Eigen::VectorXf radii = size * testing::random_vector(2003, 4, 6.0F).cwiseAbs();
    for (const LogitTransform& transform : transforms()) {
      std::vector<float> to_estimates(2003);
      std::vector<float> to_radii(2003);
      GetParam().transform_bounds(transform, estimates.data(), radii.data(), 2003, to_estimates.data(),
                                  to_radii.data());
      for (Eigen::Index i = 0; i < estimates.size(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const float low = to_estimates[at] - to_radii[at];
        const float high = to_estimates[at] + to_radii[at];
        float inside[] = {estimates[i] - radii[i], estimates[i] - 0.3F * radii[i], estimates[i],
                          estimates[i] + 0.9F * radii[i], estimates[i] + radii[i]};
        GetParam().transform(transform, inside, 5);
        for (const float logit : inside) {
          EXPECT_LE(low, logit);
          EXPECT_GE(high, logit);
        }
        // The upper one is no higher than it must be, and the width no larger than the slope tells.
        const double width = 2.0 * static_cast<double>(transform.scale) * static_cast<double>(radii[i]);
        const double slack = 1e-5 * (std::abs(static_cast<double>(inside[4])) + width) +
                             16.0 * static_cast<double>(kernels::kTransformLoss);
        EXPECT_LE(high, static_cast<double>(inside[4]) + slack);
        EXPECT_LE(2.0 * static_cast<double>(to_radii[at]), width + slack);
      }
    }
  }
}

TEST_P(TransformKernels, BoundsOfNothingStayNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float estimates[] = {-kInfinity, nan, 0.0F, kInfinity};
  const float radii[] = {1.0F, 1.0F, kInfinity, kInfinity};
  for (const LogitTransform& transform : transforms()) {
    float to_estimates[4];
    float to_radii[4];
    GetParam().transform_bounds(transform, estimates, radii, 4, to_estimates, to_radii);
    EXPECT_LT(to_estimates[0] + to_radii[0], -kLargest) << "left out";
    for (const int i : {1, 2, 3}) {
      // Whatever may be anything reaches every threshold that a logit can.
      const float most = transform.soft_cap == 0.0F ? kLargest : transform.soft_cap;
      EXPECT_FALSE(to_estimates[i] + to_radii[i] < most) << i;
    }
  }
}

// Sums take NaN for nothing: a width that no float holds must leave numbers.
TEST_P(TransformKernels, SumsHoldTokensWhoseBoundsAreFarApart) {
  const float estimate = -5e30F;
  const float radius = 1e30F;
  float to_estimate = 0.0F;
  float to_radius = 0.0F;
  GetParam().transform_bounds({.scale = 1e9F, .soft_cap = 2.0F}, &estimate, &radius, 1, &to_estimate,
                              &to_radius);
  EXPECT_GE(GetParam().sum_exp_bounds(&to_estimate, &to_radius, 1, -1.0F).high, std::exp(-2.0 + 1.0));
}

TEST_P(TransformKernels, EveryScanTransforms) {
  const RowMajorMatrix W = testing::random_matrix(150, 37, 1, 0.5F);
  const Eigen::VectorXf b = testing::random_vector(150, 2);
  const RowMajorMatrix H = testing::random_matrix(6, 37, 3);
  const SoftmaxLayer plain = SoftmaxLayer::borrow(W, b);
  const LogitTransform transform = {.scale = 1.5F, .soft_cap = 4.0F};
  const SoftmaxLayer layer = plain.with(transform);
  const Implementation& kernel = GetParam();
  std::vector<float> batch(6 * 150);
  kernel.scan_batch(layer.rows(), H.data(), 37, 6, batch.data(), layer.vocab());
  for (std::size_t q = 0; q < 6; ++q) {
    const float* const h = H.data() + q * 37;
    std::vector<float> expected(150);
    kernel.scan(plain.rows(), 0, 150, h, expected.data());
    kernel.transform(transform, expected.data(), 150);
    std::vector<float> found(150);
    kernel.scan(layer.rows(), 0, 150, h, found.data());
    EXPECT_EQ(found, expected);
    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(), batch.begin() + static_cast<std::ptrdiff_t>(q * 150)));

    const std::vector<TokenId> ids = {149, 3, 70, 3};
    std::vector<float> gathered(4);
    kernel.scan_gathered(layer.rows(), ids.data(), 4, h, gathered.data());
    std::vector<float> together(4);
    kernel.scan_gathered_batch(layer.rows(), ids.data(), 4, h, 37, 1, together.data());
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(gathered[i], expected[static_cast<std::size_t>(ids[i])]);
    EXPECT_EQ(together, gathered);

    ScoredToken best[2][3];
    kernels::TopKHeap heap(best[0], 3);
    kernels::LogSumExp sum;
    kernel.fused_scan(layer.rows(), h, {}, heap, &sum);
    kernels::TopKHeap heap_of_batch(best[1], 3);
    kernels::LogSumExp sum_of_batch;
    const kernels::LogitEdits none;
    kernel.fused_scan_batch(layer.rows(), h, 37, 1, &none, &heap_of_batch, &sum_of_batch);
    double exact = 0.0;
    for (const float logit : expected) exact += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(sum.value(), std::log(exact), 1e-5);
    EXPECT_EQ(sum.value(), sum_of_batch.value());
    const auto found_best = heap.sort();
    const auto batch_best = heap_of_batch.sort();
    EXPECT_EQ(found_best[0].logit, *std::max_element(expected.begin(), expected.end()));
    for (std::size_t n = 0; n < 3; ++n) EXPECT_EQ(found_best[n].id, batch_best[n].id);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TransformKernels,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

TEST(LogitTransform, HighestLogitIsAboveAllOfProductsUpToIt) {
  for (const LogitTransform& transform : transforms()) {
    for (float z : products()) {
      const double bound = kernels::highest_logit(transform, static_cast<double>(z));
      for (int step = 0; step < 3; ++step, z = std::nextafter(z, -kInfinity)) {
        float logit = z;
        kernels::detail::active().transform(transform, &logit, 1);
        EXPECT_LE(logit, bound) << z;
      }
    }
  }
}

TEST(LogitTransform, NoProductBelowTheLowestReachesTheLogit) {
  for (const LogitTransform& transform : transforms()) {
    for (const float z : products()) {
      float logit = z;
      kernels::detail::active().transform(transform, &logit, 1);
      const float lowest = kernels::lowest_product(transform, logit);
      EXPECT_LE(lowest, z) << transform.scale << " " << transform.soft_cap;
      if (std::abs(lowest) >= kLargest) continue;
      float below = std::nextafter(lowest, -kInfinity);
      kernels::detail::active().transform(transform, &below, 1);
      EXPECT_LT(below, logit) << z << " " << transform.scale << " " << transform.soft_cap;
    }
  }
}

// A query's bias can lift a token above the cap, and no product of another one reaches it there.
TEST(LogitTransform, TheLowestProductOfALogitAboveTheCapIsThatOfTheLargestLogits) {
  const float lowest = kernels::lowest_product({.soft_cap = 5.0F}, 6.0F);
  EXPECT_GT(lowest, 30.0F);
  EXPECT_LT(lowest, 50.0F);
}

}  // namespace
}  // namespace topksoftmax
