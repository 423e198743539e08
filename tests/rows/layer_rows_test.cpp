// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/layer_rows.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <vector>

#include "support/layers.hpp"

namespace topksoftmax {
namespace {

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

}  // namespace
}  // namespace topksoftmax
