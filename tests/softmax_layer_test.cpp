// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/softmax_layer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/weight_blocks.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

template <class W, class... Bias>
concept Borrowed = requires(W&& weights, Bias&&... bias) {
  SoftmaxLayer::borrow(std::forward<W>(weights), std::forward<Bias>(bias)...);
};
static_assert(Borrowed<RowMajorMatrix&> && Borrowed<const RowMajorMatrix&, const Eigen::VectorXf&>);
static_assert(Borrowed<Eigen::Map<const RowMajorMatrix>, Eigen::Map<const Eigen::VectorXf>>);
static_assert(Borrowed<Eigen::Block<RowMajorMatrix>> && Borrowed<kernels::Rows, int>);
static_assert(!Borrowed<RowMajorMatrix> && !Borrowed<RowMajorMatrix&, Eigen::VectorXf>,
              "what is gone when the call is over");
static_assert(!Borrowed<RowMajorMatrix, Eigen::VectorXf&> && !Borrowed<RowMajorMatrix, Eigen::VectorXf>);

using testing::error_of;
using testing::random_matrix;
using testing::random_vector;

TEST(SoftmaxLayer, BorrowsWithoutCopying) {
  const RowMajorMatrix W = random_matrix(5, 3, 1);
  const Eigen::VectorXf b = random_vector(5, 2);
  const SoftmaxLayer layer = SoftmaxLayer::borrow(W, b);
  EXPECT_EQ(layer.rows().data, W.data());
  EXPECT_EQ(layer.rows().bias, b.data());
  EXPECT_EQ(layer.vocab(), 5U);
  EXPECT_EQ(layer.dim(), 3U);
  EXPECT_EQ(layer.bytes(), 5U * (3U * 4U + 4U));
  EXPECT_EQ(layer.weights(), W);
  EXPECT_EQ(layer.biases(), b);
}

TEST(SoftmaxLayer, BorrowsStridedRows) {
  const RowMajorMatrix wide = random_matrix(5, 10, 1);
  const auto block = wide.middleCols(2, 4);
  const SoftmaxLayer layer = SoftmaxLayer::borrow(block);
  EXPECT_EQ(layer.weights(), RowMajorMatrix(block));
  EXPECT_FALSE(layer.has_bias());
  EXPECT_EQ(layer.biases(), Eigen::VectorXf::Zero(5));
}

TEST(SoftmaxLayer, WhatItOwnsLivesAsLongAsACopy) {
  const RowMajorMatrix W = random_matrix(5, 3, 1);
  std::unique_ptr<Exact> head;
  {
    const SoftmaxLayer layer = SoftmaxLayer::own(W, random_vector(5, 2));
    head = Exact::make(layer);
  }
  EXPECT_EQ(head->layer().weights(), W);
  EXPECT_EQ(head->query(random_vector(3, 3), {.k = 5}).size(), 5U);
}

TEST(SoftmaxLayer, ATransformSharesTheWeights) {
  const RowMajorMatrix W = random_matrix(5, 3, 1);
  const SoftmaxLayer layer = SoftmaxLayer::borrow(W);
  EXPECT_TRUE(layer.transform().is_identity());
  const SoftmaxLayer capped = layer.with({.scale = 0.5F, .soft_cap = 30.0F});
  EXPECT_EQ(capped.rows().data, W.data());
  EXPECT_EQ(capped.transform(), (LogitTransform{.scale = 0.5F, .soft_cap = 30.0F}));
  EXPECT_TRUE(capped.products().transform.is_identity());
  EXPECT_TRUE(layer.transform().is_identity());
  // Another one takes its place.
  EXPECT_EQ(capped.with({.scale = 2.0F}).transform(), (LogitTransform{.scale = 2.0F}));
}

TEST(SoftmaxLayer, RefusesTransformsThatAreNone) {
  const SoftmaxLayer layer = SoftmaxLayer::own(random_matrix(5, 3, 1));
  EXPECT_EQ(error_of([&] { layer.with({.scale = 0.0F}); }),
            "softmax layer: the scale of the logits is 0; it must be between 1e-09 and 1e+09");
  EXPECT_EQ(error_of([&] { layer.with({.scale = std::numeric_limits<float>::infinity()}); }),
            "softmax layer: the scale of the logits is infinite; it must be between 1e-09 and 1e+09");
  EXPECT_EQ(error_of([&] { layer.with({.soft_cap = -30.0F}); }),
            "softmax layer: the soft cap is -30; it must be between 1e-09 and 1e+09, or 0 for none");
  EXPECT_EQ(error_of([&] { layer.with({.soft_cap = std::numeric_limits<float>::quiet_NaN()}); }),
            "softmax layer: the soft cap is NaN; it must be between 1e-09 and 1e+09, or 0 for none");
}

TEST(SoftmaxLayer, RefusesValuesThatAreNotFiniteByRowAndColumn) {
  RowMajorMatrix W = random_matrix(5, 3, 1);
  Eigen::VectorXf b = random_vector(5, 2);
  W(4, 2) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(W, b); }),
            "softmax layer: W at row 4, column 2 is NaN; it must be finite");
  W(4, 2) = 0.0F;
  W(0, 1) = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(W, b); }),
            "softmax layer: W at row 0, column 1 is -infinite; it must be finite");
  W(0, 1) = 0.0F;
  b[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(W, b); }),
            "softmax layer: b[3] is infinite; it must be finite");
  b[3] = 0.0F;
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(W, b); }), "");
}

TEST(SoftmaxLayer, RefusesNotFiniteHalves) {
  std::vector<Eigen::half> halves(6, Eigen::half(1.0F));
  halves[5] = Eigen::half(std::numeric_limits<float>::infinity());
  kernels::Rows rows;
  rows.data = halves.data();
  rows.type = WeightType::float16;
  rows.count = 2;
  rows.dim = rows.stride = 3;
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(rows, 0); }),
            "softmax layer: W at row 1, column 2 is infinite; it must be finite");
}

TEST(SoftmaxLayer, RefusesScalesThatMakeWeightsInfinite) {
  const std::vector<std::int8_t> bytes = {1, -2, 3, 4, 5, -128};
  std::vector<float> scales = {1.0F, -std::numeric_limits<float>::max() / 128.0F};
  kernels::Rows rows;
  rows.data = bytes.data();
  rows.scales = scales.data();
  rows.type = WeightType::int8;
  rows.count = 2;
  rows.dim = rows.stride = 3;
  EXPECT_EQ(error_of([&] { EXPECT_TRUE(SoftmaxLayer::borrow(rows, 0).weights().allFinite()); }), "");
  scales[1] = -1e38F;
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(rows, 0); }),
            "softmax layer: scale[1] is -1e+38; it must be between -2.6584558e+36 and 2.6584558e+36, so that "
            "weights are finite");
}

TEST(SoftmaxLayer, RefusesValuesThatAreApart) {
  const RowMajorMatrix M = random_matrix(5, 4, 1);
  const auto W = M.leftCols(3);
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(W, M.col(3)); }),
            "softmax layer: b has values 4 floats apart; they must lie next to each other: take a copy");
  const Eigen::Map<const RowMajorMatrix, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> every_second(
      M.data(), 5, 2, {4, 2});
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(every_second); }),
            "softmax layer: W has values 2 floats apart; they must lie next to each other: take a copy");
  const Eigen::VectorXf b = M.col(3);
  EXPECT_EQ(SoftmaxLayer::borrow(W, b).biases(), b);
  EXPECT_EQ(SoftmaxLayer::borrow(M.topRows(1), M.topRows(1).col(3)).biases(), M.topRows(1).col(3));
}

TEST(SoftmaxLayer, RefusesWrongShapes) {
  const RowMajorMatrix W = random_matrix(5, 3, 1);
  const Eigen::VectorXf four = random_vector(4, 2);
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(W, four); }),
            "softmax layer: b has 4 values, W has 5 rows; they must agree (or b be empty)");
  EXPECT_EQ(error_of([&] { SoftmaxLayer::own(RowMajorMatrix(0, 3)); }),
            "softmax layer: W has 0 rows; the vocabulary needs at least 1 token");
  EXPECT_EQ(error_of([&] { SoftmaxLayer::own(RowMajorMatrix(3, 0)); }),
            "softmax layer: W has 0 columns; the dimension must be at least 1");
  kernels::Rows rows = SoftmaxLayer::borrow(W).rows();
  rows.stride = 2;
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(rows, 0); }),
            "softmax layer: rows are 2 weights apart, less than their length 3");
  rows.stride = 3;
  rows.type = WeightType::int8;
  EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(rows, 0); }),
            "softmax layer: int8 rows, and only they, need a scale each");
}

TEST(SoftmaxLayer, TakesBlocksOfWeightsWhereTheyLie) {
  const SoftmaxLayer layer = testing::random_block_layer(WeightType::q6_k, 7, 512, 3);
  EXPECT_EQ(layer.weight_type(), WeightType::q6_k);
  EXPECT_EQ(layer.bytes(), 7U * (2U * 210U + 4U));
  EXPECT_EQ(layer.rows().row(2) - layer.rows().row(1), 3 * 210);
}

TEST(SoftmaxLayer, RefusesBlocksThatAreNotWholeOrNotFinite) {
  const std::vector<std::uint8_t> blocks = testing::random_blocks(WeightType::q4_k, 4, 5);
  kernels::Rows rows;
  rows.type = WeightType::q4_k;
  rows.data = blocks.data();
  rows.count = 2;
  rows.dim = 320;
  rows.stride = 512;
  EXPECT_EQ(
      error_of([&] { SoftmaxLayer::borrow(rows, 0); }),
      "softmax layer: rows of 320 weights, 512 apart, are not whole blocks of 256, as q4_k stores them");
  rows.dim = 256;
  rows.stride = 300;
  EXPECT_EQ(
      error_of([&] { SoftmaxLayer::borrow(rows, 0); }),
      "softmax layer: rows of 256 weights, 300 apart, are not whole blocks of 256, as q4_k stores them");
  for (const WeightType type : {WeightType::q8_0, WeightType::q6_k, WeightType::q4_k}) {
    for (const std::size_t offset : testing::half_offsets(type)) {
      std::vector<std::uint8_t> damaged = testing::random_blocks(type, 2, 5);
      damaged[weight_block(type).bytes + offset + 1] = 0x7e;  // a NaN
      rows.type = type;
      rows.data = damaged.data();
      rows.count = 2;
      rows.dim = rows.stride = weight_block(type).weights;
      EXPECT_EQ(error_of([&] { SoftmaxLayer::borrow(rows, 0); }),
                "softmax layer: W at row 1, column 0 is NaN; it must be finite");
    }
  }
}

}  // namespace
}  // namespace topksoftmax
