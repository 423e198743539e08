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
TEST(LayerMoments, AreSumsOverTheRowsInAUnit) {
  for (const std::size_t vocab : {std::size_t{7}, 2 * kLayerRowsAtOnce, 2 * kLayerRowsAtOnce + 1}) {
    RowMajorMatrix W = random_matrix(static_cast<Eigen::Index>(vocab), 6, 3);
    W(W.rows() - 1, 2) = -12.0F;  // the largest, and in the last part
    const Eigen::VectorXf b = random_matrix(static_cast<Eigen::Index>(vocab), 1, 4);
    const Eigen::MatrixXd scaled = W.cast<double>() / 8.0;
    const Eigen::VectorXd biases = b.cast<double>();
    const SoftmaxLayer layer = SoftmaxLayer::own(std::move(W), b);
    const LayerMoments moments = layer_moments(layer, SerialExecutor());
    EXPECT_EQ(moments.unit, 8.0);
    const Eigen::MatrixXd gram = scaled.transpose() * scaled;
    EXPECT_LE((moments.gram - gram).norm(), 1e-5 * gram.norm()) << vocab;
    const double magnitude = scaled.cwiseAbs().sum();
    EXPECT_LE((moments.sum - scaled.colwise().sum().transpose()).norm(), 1e-12 * magnitude) << vocab;
    EXPECT_LE((moments.bias_sum - scaled.transpose() * biases).norm(), 1e-12 * magnitude) << vocab;
    EXPECT_NEAR(moments.biases, biases.sum(), 1e-9);
    EXPECT_NEAR(moments.bias_squares, biases.squaredNorm(), 1e-12 * biases.squaredNorm());
    EXPECT_EQ(moments.gram, layer_moments(layer, testing::ReversedExecutor(3)).gram) << vocab;
  }
}

TEST(LayerMoments, AreZeroWithoutWeights) {
  const RowMajorMatrix W = RowMajorMatrix::Zero(5, 3);
  const LayerMoments moments = layer_moments(SoftmaxLayer::borrow(W), SerialExecutor());
  EXPECT_EQ(moments.unit, 1.0);
  EXPECT_EQ(moments.gram, Eigen::MatrixXd::Zero(3, 3));
  EXPECT_EQ(moments.sum, Eigen::VectorXd::Zero(3));
  EXPECT_EQ(moments.bias_sum, Eigen::VectorXd::Zero(3));
}

// The squares of these are more, and less, than a float holds.
TEST(LayerMoments, TakeWeightsOfAnySize) {
  for (const float weight : {0x1.8p100F, 0x1.8p-140F}) {
    const RowMajorMatrix W = RowMajorMatrix::Constant(4, 2, weight);
    const LayerMoments moments = layer_moments(SoftmaxLayer::borrow(W), SerialExecutor());
    EXPECT_EQ(moments.unit, static_cast<double>(weight) / 1.5);
    EXPECT_EQ(moments.gram, Eigen::MatrixXd::Constant(2, 2, 4 * 2.25));
  }
}

}  // namespace
}  // namespace topksoftmax
