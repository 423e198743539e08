// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/evened_contexts.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/layers.hpp"

namespace topksoftmax {
namespace {

using detail::EvenedContexts;

TEST(EvenedContexts, AreTheCallersWhereNoCoordinateStandsOut) {
  RowMajorMatrix H = testing::random_matrix(500, 12, 3);
  H.col(4) *= 5.0F;
  const EvenedContexts even(Contexts::of(H));
  EXPECT_EQ(even.contexts().data, H.data());
  std::vector<float> v(24, 1.5F);
  even.fold_into(v);
  EXPECT_EQ(v, std::vector<float>(24, 1.5F));
}

TEST(EvenedContexts, BringDownWhatStandsOutAndKeepTheOthers) {
  RowMajorMatrix H = testing::random_matrix(500, 12, 3);
  H.col(4) *= 100.0F;
  H.col(7).array() += 60.0F;  // by its mean
  const EvenedContexts even(Contexts::of(H));
  ASSERT_NE(even.contexts().data, H.data());
  ASSERT_EQ(even.contexts().count, 500U);
  const Eigen::Map<const RowMajorMatrix> E(even.contexts().data, 500, 12);
  for (Eigen::Index j = 0; j < 12; ++j) {
    const float spread = E.col(j).norm();
    EXPECT_EQ(E.col(j) == H.col(j), j != 4 && j != 7);
    EXPECT_GT(spread, 0.7F * E.col(0).norm());
    EXPECT_LT(spread, 1.4F * E.col(0).norm());
  }
}

TEST(EvenedContexts, VectorsKeepTheirProducts) {
  RowMajorMatrix H = testing::random_matrix(50, 8, 3);
  H.col(2) *= 1000.0F;
  const EvenedContexts even(Contexts::of(H));
  const Eigen::Map<const RowMajorMatrix> E(even.contexts().data, 50, 8);
  const RowMajorMatrix V = testing::random_matrix(3, 8, 4);
  std::vector<float> folded(V.data(), V.data() + V.size());
  even.fold_into(folded);
  const Eigen::Map<const RowMajorMatrix> F(folded.data(), 3, 8);
  EXPECT_TRUE((H * F.transpose()).isApprox(E * V.transpose(), 1e-5F));
}

TEST(EvenedContexts, ZerosAreLeftAlone) {
  RowMajorMatrix H = RowMajorMatrix::Zero(20, 5);
  H(3, 1) = 7.0F;
  EXPECT_EQ(EvenedContexts(Contexts::of(H)).contexts().data, H.data());
}

}  // namespace
}  // namespace topksoftmax
