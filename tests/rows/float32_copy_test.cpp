// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/float32_copy.hpp"

#include <gtest/gtest.h>

#include "support/layers.hpp"
#include "support/weight_blocks.hpp"

namespace topksoftmax {
namespace {

TEST(Float32Copy, HasTheWeightsThatTheLayerStandsFor) {
  const LogitTransform transform = {.scale = 0.5F, .soft_cap = 20.0F};
  const SoftmaxLayer stored = testing::random_block_layer(WeightType::q8_0, 40, 64, 2).with(transform);
  const SoftmaxLayer copy = float32_copy(stored);
  EXPECT_EQ(copy.weight_type(), WeightType::float32);
  EXPECT_EQ(copy.weights(), stored.weights());
  EXPECT_EQ(copy.biases(), stored.biases());
  EXPECT_EQ(copy.transform().scale, transform.scale);
  EXPECT_EQ(copy.transform().soft_cap, transform.soft_cap);
}

TEST(Float32Copy, HasABiasWhereTheLayerHasOne) {
  const RowMajorMatrix W = testing::random_matrix(9, 5, 1);
  const SoftmaxLayer copy = float32_copy(SoftmaxLayer::borrow(W));
  EXPECT_FALSE(copy.has_bias());
  EXPECT_EQ(copy.weights(), W);
  EXPECT_NE(copy.rows().data, static_cast<const void*>(W.data()));
  EXPECT_TRUE(float32_copy(testing::random_layer(9, 5, 1)).has_bias());
}

}  // namespace
}  // namespace topksoftmax
