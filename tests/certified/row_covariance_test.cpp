// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/row_covariance.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <optional>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/spans.hpp"
#include "support/statistics.hpp"

namespace topksoftmax {
namespace {

using detail::layer_moments;
using detail::ProductMoments;
using detail::RowCovariance;
using testing::LogitMoments;
using testing::random_layer;
using testing::random_matrix;
using testing::Reference;
using testing::span_of;

RowCovariance covariance_of(const SoftmaxLayer& layer) {
  return RowCovariance(layer_moments(layer, SerialExecutor()));
}

TEST(RowCovariance, HasTheMomentsOfAllProductsWithinItsErrors) {
  for (const std::size_t dim : {1U, 7U, 48U, 130U}) {
    const SoftmaxLayer layer = random_layer(1003, static_cast<Eigen::Index>(dim), 3);
    const RowCovariance covariance = covariance_of(layer);
    Workspace workspace;
    const RowMajorMatrix contexts = random_matrix(20, static_cast<Eigen::Index>(dim), 5);
    for (Eigen::Index q = 0; q < contexts.rows(); ++q) {
      const Eigen::VectorXf h = contexts.row(q) * std::exp(static_cast<float>(q - 10));
      const std::optional<ProductMoments> found = covariance.of(span_of(h), workspace);
      ASSERT_TRUE(found);
      const LogitMoments expected(Reference(layer, h).logits);
      EXPECT_NEAR(found->mean, expected.mean, found->mean_error + 1e-14);
      EXPECT_NEAR(found->variance, expected.variance, found->variance_error + 1e-14);
      EXPECT_LE(found->variance_error, 2e-3 * expected.variance);
      EXPECT_GT(found->rounding, 0.0);
      EXPECT_LE(found->rounding, 1e-3 * std::sqrt(expected.variance));
    }
  }
}

// What all rows share takes no part in the variance, however much it is.
TEST(RowCovariance, IsThatAroundTheMean) {
  RowMajorMatrix W = random_matrix(500, 16, 3);
  W.rowwise() += 20.0F * random_matrix(1, 16, 4).row(0);
  const Eigen::VectorXf b = random_matrix(500, 1, 6).array() + 10.0F;
  const SoftmaxLayer layer = SoftmaxLayer::own(W, b);
  const RowCovariance covariance = covariance_of(layer);
  Workspace workspace;
  const Eigen::VectorXf h = random_matrix(1, 16, 5).row(0);
  const std::optional<ProductMoments> found = covariance.of(span_of(h), workspace);
  ASSERT_TRUE(found);
  const LogitMoments expected(Reference(layer, h).logits);
  EXPECT_NEAR(found->variance, expected.variance, 1e-3 * expected.variance);
  EXPECT_NEAR(found->variance, expected.variance, found->variance_error);
  EXPECT_NEAR(found->mean, expected.mean, 1e-6 * std::abs(expected.mean));
}

// Beside the largest weight, float32 loses much of the second coordinate's square.
TEST(RowCovariance, CountsWhatSmallProductsLose) {
  const float small = std::sqrt(1.5F) * 0x1p-74F * std::sqrt(0.5F);
  RowMajorMatrix W(256, 2);
  for (Eigen::Index i = 0; i < W.rows(); ++i) W.row(i) << 1.0F, i % 2 == 0 ? small : -small;
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const RowCovariance covariance = covariance_of(layer);
  Workspace workspace;
  const Eigen::VectorXf h = Eigen::Vector2f(0.0F, 1e10F);
  const std::optional<ProductMoments> found = covariance.of(span_of(h), workspace);
  ASSERT_TRUE(found);
  const LogitMoments expected(Reference(layer, h).logits);
  EXPECT_NEAR(found->variance, expected.variance, found->variance_error);
}

TEST(RowCovariance, KnowsNothingOfContextsWhoseProductsOverflow) {
  Eigen::RowVectorXf direction = Eigen::RowVectorXf::Ones(9);
  direction[0] = 3.0F;
  const RowMajorMatrix W = random_matrix(100, 1, 3) * direction;
  const RowCovariance covariance = covariance_of(SoftmaxLayer::borrow(W));
  Workspace workspace;
  const Eigen::VectorXf h = Eigen::VectorXf::Constant(9, 3e38F);
  EXPECT_FALSE(covariance.of(span_of(h), workspace));
}

TEST(RowCovariance, IsKeptWhereItIsFarSmallerThanTheRows) {
  EXPECT_TRUE(RowCovariance::is_worth_keeping(512, 4 * 512 * 512 * sizeof(float)));
  EXPECT_FALSE(RowCovariance::is_worth_keeping(512, 4 * 512 * 512 * sizeof(float) - 1));
}

}  // namespace
}  // namespace topksoftmax
