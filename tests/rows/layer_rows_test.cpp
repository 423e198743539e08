// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/layer_rows.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cstddef>
#include <utility>
#include <vector>

#include "support/executors.hpp"
#include "support/layers.hpp"

namespace topksoftmax {
namespace {

using detail::kLayerRowsAtOnce;
using testing::random_layer;
using testing::random_matrix;

TEST(LayerRows, AreThoseThatFollowOrAreNamed) {
  const RowMajorMatrix W = random_matrix(9, 5, 1);
  const SoftmaxLayer layer = SoftmaxLayer::borrow(W);
  EXPECT_EQ(detail::rows_from(layer, 0, 9), W);
  EXPECT_EQ(detail::rows_from(layer, 3, 4), W.middleRows(3, 4));
  const std::vector<TokenId> tokens = {8, 0, 8};
  const RowMajorMatrix rows = detail::rows_at(layer, tokens);
  ASSERT_EQ(rows.rows(), 3);
  EXPECT_EQ(rows.row(0), W.row(8));
  EXPECT_EQ(rows.row(1), W.row(0));
  EXPECT_EQ(rows.row(2), W.row(8));
}

TEST(LayerRows, HaveTheirBiasesOrNone) {
  const SoftmaxLayer layer = random_layer(9, 5, 1);
  const std::vector<TokenId> tokens = {7, 2};
  const Eigen::VectorXd biases = detail::biases_at(layer, tokens);
  EXPECT_EQ(biases[0], static_cast<double>(layer.rows().bias[7]));
  EXPECT_EQ(biases[1], static_cast<double>(layer.rows().bias[2]));
  const RowMajorMatrix W = random_matrix(9, 5, 1);
  EXPECT_EQ(detail::biases_at(SoftmaxLayer::borrow(W), tokens), Eigen::VectorXd::Zero(2));
}

TEST(LayerRows, AreSpreadEvenlyOverTheLayer) {
  const RowMajorMatrix W = random_matrix(10, 2, 1);
  const SoftmaxLayer layer = SoftmaxLayer::borrow(W);
  EXPECT_EQ(detail::evenly_spaced_tokens(layer, 3), (std::vector<TokenId>{0, 3, 6}));
  EXPECT_EQ(detail::evenly_spaced_tokens(layer, 99).size(), 10U);
}

// In one part, in several, and in several of which the last is short.
TEST(LayerGram, IsThatOfTheRowsOverTheSquareOfTheLargest) {
  for (const std::size_t vocab : {std::size_t{7}, 2 * kLayerRowsAtOnce, 2 * kLayerRowsAtOnce + 1}) {
    RowMajorMatrix W = random_matrix(static_cast<Eigen::Index>(vocab), 6, 3);
    W(W.rows() - 1, 2) = -12.0F;  // the largest, and in the last part
    const Eigen::MatrixXd scaled = W.cast<double>() / 12.0;
    const Eigen::MatrixXd expected = scaled.transpose() * scaled;
    const SoftmaxLayer layer = SoftmaxLayer::own(std::move(W));
    const Eigen::MatrixXd gram = detail::layer_gram(layer, SerialExecutor());
    EXPECT_LE((gram - expected).norm(), 1e-5 * expected.norm()) << vocab;
    EXPECT_EQ(gram, detail::layer_gram(layer, testing::ReversedExecutor(3))) << vocab;
  }
}

TEST(LayerGram, IsZeroWithoutWeights) {
  const RowMajorMatrix W = RowMajorMatrix::Zero(5, 3);
  EXPECT_EQ(detail::layer_gram(SoftmaxLayer::borrow(W), SerialExecutor()), Eigen::MatrixXd::Zero(3, 3));
}

// The squares of these are more than a float holds.
TEST(LayerGram, TakesWeightsOfAnySize) {
  const RowMajorMatrix W = RowMajorMatrix::Constant(4, 2, 1e30F);
  const Eigen::MatrixXd gram = detail::layer_gram(SoftmaxLayer::borrow(W), SerialExecutor());
  EXPECT_EQ(gram, Eigen::MatrixXd::Constant(2, 2, 4.0));
}

}  // namespace
}  // namespace topksoftmax
