// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/building/choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/top_k.hpp"

namespace topksoftmax {
namespace {

// Most of the coordinates leave few rows above the true k-th logit, and many above what they find of it.
TEST(BoundChooser, CountsWhatPassesTheThresholdThatQueriesFind) {
  constexpr Eigen::Index kDim = 64;
  const SoftmaxLayer layer = SoftmaxLayer::own(testing::random_matrix(60000, kDim, 1, 0.125F));
  const RowMajorMatrix contexts = testing::random_matrix(600, kDim, 2, 3.0F);
  const auto head = Certified::build(layer, contexts.topRows(500), {.outside_sample = 0});
  std::size_t passing = 0;
  for (Eigen::Index i = 500; i < 600; ++i) {
    const TopK top = head->query(contexts.row(i).transpose(), {.k = 5, .probabilities = false});
    passing += top.work.screened - 60000;
  }
  EXPECT_LT(passing, 100U * 200U);
}

constexpr Eigen::Index kManyDims = 128;

bool takes_own_coordinates(const Certified& head) {
  return head.screener().index().transform.is_identity();
}

// Normal rows and contexts: a scan in bytes is the best there is.
TEST(BoundChooser, ReadsFewRowsInTheirOwnCoordinates) {
  const RowMajorMatrix contexts = testing::random_matrix(600, kManyDims, 2);
  for (const Eigen::Index vocab : {1, 20, 300, 16 * 128}) {
    const SoftmaxLayer layer = testing::random_layer(vocab, kManyDims, 1);
    const auto fused = Fused::make(layer);
    for (const Eigen::Index learned_from : {0, 1, 500}) {
      const auto head = Certified::build(layer, contexts.topRows(learned_from));
      EXPECT_TRUE(takes_own_coordinates(*head)) << vocab << ", " << learned_from;
      const auto k = static_cast<std::size_t>(std::min<Eigen::Index>(vocab, 5));
      for (Eigen::Index i = 500; i < 600; ++i) {
        const TopK found = head->query(contexts.row(i).transpose(), {.k = k});
        const TopK exact = fused->query(contexts.row(i).transpose(), {.k = k});
        ASSERT_EQ(found.ids, exact.ids);
        ASSERT_EQ(found.logits, exact.logits);
        EXPECT_TRUE(found.certified);
        EXPECT_LE(found.log_z_low, exact.log_z + 1e-5);
        EXPECT_GE(found.log_z_high, exact.log_z - 1e-5);
      }
    }
  }
}

TEST(BoundChooser, LearnsCoordinatesWhereTheseSaveMuchOrAreAskedFor) {
  const SoftmaxLayer few = testing::random_layer(16 * 128, kManyDims, 1);
  const RowMajorMatrix contexts = testing::random_matrix(600, kManyDims, 2);
  const RowMajorMatrix alike = testing::random_matrix(600, 3, 3) * testing::random_matrix(3, kManyDims, 4);
  EXPECT_FALSE(takes_own_coordinates(*Certified::build(few, alike)));
  EXPECT_FALSE(takes_own_coordinates(*Certified::build(few, contexts, {.prefix = 32})));
  EXPECT_FALSE(takes_own_coordinates(*Certified::build(few, contexts, {.boxes = BoundBoxes::always})));
  EXPECT_FALSE(
      takes_own_coordinates(*Certified::build(few, contexts, {.coordinates = BoundCoordinates::contexts})));
  // A large coordinate in all contexts makes what is lost to bytes count for more.
  RowMajorMatrix with_outlier = contexts;
  with_outlier.col(7).array() += 300.0F;
  EXPECT_FALSE(takes_own_coordinates(*Certified::build(few, with_outlier)));
  // So does one in all rows.
  RowMajorMatrix W = few.weights();
  W.col(3).array() += 100.0F;
  EXPECT_FALSE(takes_own_coordinates(*Certified::build(SoftmaxLayer::own(W), contexts)));
  const SoftmaxLayer many = testing::random_layer(16 * 128 + 1, kManyDims, 1);
  EXPECT_FALSE(takes_own_coordinates(*Certified::build(many, contexts)));
}

}  // namespace
}  // namespace topksoftmax
