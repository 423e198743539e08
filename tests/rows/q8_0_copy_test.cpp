// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/q8_0_copy.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/exact.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using testing::random_layer;
using testing::random_vector;

TEST(Q80Copy, IsWithinHalfAStepOfEveryWeight) {
  const SoftmaxLayer layer = random_layer(50, 96, 3);
  const SoftmaxLayer copy = q8_0_copy(layer);
  EXPECT_EQ(copy.weight_type(), WeightType::q8_0);
  EXPECT_EQ(copy.biases(), layer.biases());
  EXPECT_EQ(copy.bytes(), 50U * (96U / 32U * 34U + 4U));
  const RowMajorMatrix W = layer.weights();
  const RowMajorMatrix rounded = copy.weights();
  for (Eigen::Index token = 0; token < W.rows(); ++token) {
    for (Eigen::Index block = 0; block < W.cols(); block += 32) {
      const auto exact = W.row(token).segment(block, 32);
      const auto near = rounded.row(token).segment(block, 32);
      const float step = exact.cwiseAbs().maxCoeff() / 127.0F;
      // The step itself is rounded to a binary16, and up to 127 of them are added.
      EXPECT_LE((exact - near).cwiseAbs().maxCoeff(), step * (0.501F + 127.0F * 0x1p-11F));
    }
  }
}

TEST(Q80Copy, KeepsWhatItCanHold) {
  RowMajorMatrix W = RowMajorMatrix::Zero(3, 32);
  for (Eigen::Index j = 0; j < 32; ++j) W(1, j) = static_cast<float>(j - 5) * 0.25F;
  W(1, 0) = -127.0F * 0.25F;
  W(2, 7) = 127.0F;
  const SoftmaxLayer layer = SoftmaxLayer::own(W).with({.scale = 0.5F, .soft_cap = 30.0F});
  const SoftmaxLayer copy = q8_0_copy(layer);
  EXPECT_EQ(copy.weights(), W);
  EXPECT_EQ(copy.transform(), layer.transform());
  const Eigen::VectorXf h = random_vector(32, 4);
  EXPECT_EQ(Exact::make(copy)->query(h, {.k = 3}).logits, Exact::make(layer)->query(h, {.k = 3}).logits);
}

TEST(Q80Copy, HasZerosForWhatIsTooSmall) {
  for (const float weight : {1e-38F, 1e-40F, 1e-8F * 127.0F}) {
    RowMajorMatrix W = RowMajorMatrix::Zero(1, 32);
    W(0, 3) = weight;
    W(0, 4) = -0.5F * weight;
    EXPECT_EQ(q8_0_copy(SoftmaxLayer::own(W)).weights(), RowMajorMatrix::Zero(1, 32)) << weight;
  }
}

TEST(Q80Copy, RefusesWhatBlocksCannotHold) {
  EXPECT_EQ(error_of([] { q8_0_copy(random_layer(3, 40, 1)); }),
            "q8_0: rows have 40 weights; they must be whole blocks of 32");
  RowMajorMatrix W = RowMajorMatrix::Zero(2, 32);
  W(1, 3) = 1e8F;
  EXPECT_NE(error_of([&] { q8_0_copy(SoftmaxLayer::own(W)); }).find("must be finite"), std::string::npos);
}

}  // namespace
}  // namespace topksoftmax
