// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/layer_moments.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cstddef>
#include <utility>

#include "support/executors.hpp"
#include "support/layers.hpp"

namespace topksoftmax {
namespace {

using detail::kLayerRowsAtOnce;
using detail::layer_moments;
using detail::LayerMoments;
using testing::random_matrix;

// In one part, in several, and in several of which the last is short.
TEST(LayerMoments, AreThoseOfTheRowsInAUnit) {
  for (const std::size_t vocab : {std::size_t{7}, 2 * kLayerRowsAtOnce, 2 * kLayerRowsAtOnce + 1}) {
    RowMajorMatrix W = random_matrix(static_cast<Eigen::Index>(vocab), 6, 3);
    W.rowwise() += random_matrix(1, 6, 5).row(0);
    W(W.rows() - 1, 2) = -12.0F;  // the largest, and in the last part
    const Eigen::VectorXf b = random_matrix(static_cast<Eigen::Index>(vocab), 1, 4);
    const Eigen::MatrixXd rows = W.cast<double>() / 8.0;
    const Eigen::VectorXd biases = b.cast<double>();
    const SoftmaxLayer layer = SoftmaxLayer::own(std::move(W), b);
    const LayerMoments moments = layer_moments(layer, SerialExecutor());
    const auto count = static_cast<double>(vocab);
    const Eigen::VectorXd mean = rows.colwise().mean();
    const Eigen::MatrixXd gram = rows.transpose() * rows;
    const Eigen::MatrixXd centred = rows.rowwise() - mean.transpose();
    const Eigen::MatrixXd covariance = centred.transpose() * centred / count;
    EXPECT_EQ(moments.rows, vocab);
    EXPECT_EQ(moments.unit, 8.0);
    EXPECT_LE((moments.mean - mean).norm(), 1e-12) << vocab;
    EXPECT_LE((moments.covariance - covariance).norm(), 1e-6 * covariance.norm()) << vocab;
    EXPECT_LE((moments.gram() - gram).norm(), 1e-6 * gram.norm()) << vocab;
    EXPECT_LE((moments.bias_covariance - centred.transpose() * biases / count).norm(), 1e-12) << vocab;
    EXPECT_NEAR(moments.bias_mean, biases.mean(), 1e-12);
    EXPECT_NEAR(moments.bias_square, biases.squaredNorm() / count, 1e-12);
    EXPECT_EQ(moments.covariance, layer_moments(layer, testing::ReversedExecutor(3)).covariance) << vocab;
  }
}

TEST(LayerMoments, AreZeroWithoutWeights) {
  const RowMajorMatrix W = RowMajorMatrix::Zero(5, 3);
  const LayerMoments moments = layer_moments(SoftmaxLayer::borrow(W), SerialExecutor());
  EXPECT_EQ(moments.unit, 1.0);
  EXPECT_EQ(moments.covariance, Eigen::MatrixXd::Zero(3, 3));
  EXPECT_EQ(moments.mean, Eigen::VectorXd::Zero(3));
  EXPECT_EQ(moments.bias_covariance, Eigen::VectorXd::Zero(3));
}

// The squares of these are more, and less, than a float holds.
TEST(LayerMoments, TakeWeightsOfAnySize) {
  for (const float weight : {0x1.8p100F, 0x1.8p-140F}) {
    const RowMajorMatrix W = RowMajorMatrix::Constant(4, 2, weight);
    const LayerMoments moments = layer_moments(SoftmaxLayer::borrow(W), SerialExecutor());
    EXPECT_EQ(moments.unit, static_cast<double>(weight) / 1.5);
    EXPECT_EQ(moments.covariance, Eigen::MatrixXd::Zero(2, 2));
    EXPECT_EQ(moments.gram(), Eigen::MatrixXd::Constant(2, 2, 4 * 2.25));
  }
}

}  // namespace
}  // namespace topksoftmax
