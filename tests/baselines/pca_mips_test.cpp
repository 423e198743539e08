// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/baselines/pca_mips.hpp"

#include <gtest/gtest.h>

#include <Eigen/SVD>
#include <algorithm>
#include <set>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/baselines/build_pca_mips.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;

constexpr Eigen::Index kVocab = 320;
constexpr Eigen::Index kDim = 12;

std::set<TokenId> screen(const PcaMips& head, const Eigen::VectorXf& h, std::size_t leaves) {
  Workspace workspace;
  Query query;
  query.h = h.data();
  query.effort = leaves;
  const Candidates found = head.screener().screen(query, workspace);
  EXPECT_FALSE(found.everything);
  const std::set<TokenId> ids(found.ids.begin(), found.ids.end());
  EXPECT_EQ(ids.size(), found.ids.size()) << "each token once";
  return ids;
}

TEST(PcaMips, OneLevelSplitsAtTheMedianOfTheFirstComponent) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  // The lifted rows, and their first principal component by an SVD.
  Eigen::MatrixXd lifted(kVocab, kDim + 2);
  lifted.leftCols(kDim) = layer.weights().cast<double>();
  lifted.col(kDim) = layer.biases().cast<double>();
  const Eigen::VectorXd norms = lifted.leftCols(kDim + 1).rowwise().squaredNorm();
  lifted.col(kDim + 1) = (norms.maxCoeff() - norms.array()).max(0.0).sqrt();
  const Eigen::MatrixXd centred = lifted.rowwise() - lifted.colwise().mean();
  const Eigen::BDCSVD<Eigen::MatrixXd> svd(centred, Eigen::ComputeThinV);
  const Eigen::VectorXd component = svd.matrixV().col(0);
  const Eigen::VectorXd projections = lifted * component;
  std::vector<double> sorted(projections.begin(), projections.end());
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[kVocab / 2];

  const auto head = PcaMips::build(layer, {.depth = 1});
  for (unsigned i = 0; i < 20; ++i) {
    const Eigen::VectorXf h = random_vector(kDim, 30 + i);
    Eigen::VectorXd context(kDim + 2);
    context << h.cast<double>(), 1.0, 0.0;
    const bool above = context.dot(component) >= median;
    std::set<TokenId> expected;
    for (Eigen::Index token = 0; token < kVocab; ++token) {
      if ((projections[token] >= median) == above) expected.insert(static_cast<TokenId>(token));
    }
    EXPECT_EQ(screen(*head, h, 1), expected);
  }
}

TEST(PcaMips, TheSizeOfTheRowsMakesNoDifferenceToTheTree) {
  const RowMajorMatrix W = random_matrix(kVocab, kDim, 1);
  const auto plain = PcaMips::build(SoftmaxLayer::own(W), {.depth = 4});
  for (const float size : {0x1p83F, 0x1p-83F}) {  // about 1e25 and 1e-25
    const auto scaled = PcaMips::build(SoftmaxLayer::own(RowMajorMatrix(size * W)), {.depth = 4});
    for (unsigned i = 0; i < 10; ++i) {
      const Eigen::VectorXf h = random_vector(kDim, 30 + i);
      const Eigen::VectorXf alike = size * h;
      for (std::size_t leaves = 1; leaves < 16; ++leaves)
        EXPECT_EQ(screen(*scaled, alike, leaves), screen(*plain, h, leaves)) << size << ' ' << leaves;
    }
  }
  // Next to rows so long a context of such a length is next to nothing.
  const auto scaled = PcaMips::build(SoftmaxLayer::own(RowMajorMatrix(0x1p83F * W)), {.depth = 4});
  EXPECT_EQ(screen(*scaled, random_vector(kDim, 30, 1e-25F), 3),
            screen(*plain, Eigen::VectorXf::Zero(kDim), 3));
}

TEST(PcaMips, MoreLeavesAddTokens) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const auto head = PcaMips::build(layer, {.depth = 5});
  for (unsigned i = 0; i < 10; ++i) {
    const Eigen::VectorXf h = random_vector(kDim, 60 + i);
    std::set<TokenId> before;
    for (std::size_t leaves = 1; leaves < 32; ++leaves) {
      const std::set<TokenId> found = screen(*head, h, leaves);
      EXPECT_EQ(found.size(), leaves * kVocab / 32);
      EXPECT_TRUE(std::includes(found.begin(), found.end(), before.begin(), before.end()));
      before = found;
    }
  }
}

TEST(PcaMips, VisitsTheLeavesOfOneWrongTurnUnlessTold) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const TopK answer = PcaMips::build(layer, {.depth = 5})->query(random_vector(kDim, 3));
  EXPECT_EQ(answer.work.candidates, 6U * kVocab / 32);
}

TEST(PcaMips, HasNoLevelsThatLeaveLeavesEmpty) {
  const SoftmaxLayer layer = random_layer(5, kDim, 1);
  const auto head = PcaMips::build(layer, {.depth = 10, .leaves = 1});
  const TopK answer = head->query(random_vector(kDim, 3));
  EXPECT_GE(answer.work.candidates, 1U);
  EXPECT_LE(answer.work.candidates, 2U);
}

TEST(PcaMips, RefusesATreeTooDeepAndOtherContexts) {
  EXPECT_THROW(PcaMips::build(random_layer(10, 3, 1), {.depth = 25}), Error);
  EXPECT_THROW(PcaMips::build(random_layer(10, 3, 1), random_matrix(5, 4, 1)), Error);
}

}  // namespace
}  // namespace topksoftmax
