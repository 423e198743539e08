// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/building/found_thresholds.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <Eigen/LU>
#include <Eigen/QR>
#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/certified/building/trials.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/threshold.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {
namespace {

using detail::CoordinateBasis;
using detail::FoundThresholds;
using detail::Trials;
using testing::random_matrix;
using testing::random_vector;

constexpr Eigen::Index kVocab = 3000;
constexpr Eigen::Index kDim = 64;
constexpr std::size_t kTokens = 5;

/// Contexts and rows that differ in all directions alike, so that a few coordinates say little of the others.
class InAllDirections : public ::testing::Test {
 protected:
  RowMajorMatrix W_ = random_matrix(kVocab, kDim, 1);
  Eigen::VectorXf b_ = random_vector(kVocab, 2, 0.5F);
  SoftmaxLayer layer_ = SoftmaxLayer::own(W_, b_);
  Trials trials_{layer_, random_matrix(20, kDim, 3), kTokens, default_executor()};
};

/// The k-th best logit of the rows that are scored for the best estimates, in float64.
double found(const Eigen::VectorXd& logits, const Eigen::VectorXd& estimates) {
  std::vector<Eigen::Index> rows(static_cast<std::size_t>(logits.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<Eigen::Index>(i);
  std::sort(rows.begin(), rows.end(),
            [&](Eigen::Index a, Eigen::Index b) { return estimates[a] > estimates[b]; });
  std::vector<double> best;
  for (std::size_t i = 0; i < detail::seeds(kTokens); ++i) best.push_back(logits[rows[i]]);
  std::sort(best.begin(), best.end(), std::greater<>());
  return best[kTokens - 1];
}

TEST_F(InAllDirections, AreTheBestOfThoseWithTheBestEstimates) {
  // Coordinates that are neither orthogonal nor of one length: rows have others than contexts.
  const Eigen::MatrixXd spanning = random_matrix(kDim, 40, 4).cast<double>();
  const Eigen::MatrixXd all = Eigen::HouseholderQR<Eigen::MatrixXd>(spanning).householderQ();
  const CoordinateBasis coordinates = {all.leftCols(40).transpose(), random_matrix(40, 40, 7).cast<double>()};
  const FoundThresholds thresholds(layer_, coordinates, trials_, default_executor());
  const Eigen::MatrixXd basis = coordinates.product().transpose();
  const Eigen::MatrixXd rows =
      W_.cast<double>() * basis * (basis.transpose() * basis).inverse();  // by least squares
  for (const Eigen::Index width : {8, 32, 40}) {
    const Eigen::VectorXd at = thresholds.at(static_cast<std::size_t>(width));
    for (Eigen::Index i = 0; i < trials_.contexts.rows(); ++i) {
      const Eigen::VectorXd h = trials_.contexts.row(i).cast<double>();
      const Eigen::VectorXd logits = W_.cast<double>() * h + b_.cast<double>();
      const Eigen::VectorXd estimates =
          rows.leftCols(width) * (basis.leftCols(width).transpose() * h) + b_.cast<double>();
      EXPECT_NEAR(at[i], found(logits, estimates), 1e-4) << width;
    }
  }
}

TEST_F(InAllDirections, RiseToTheTrueOnes) {
  const FoundThresholds thresholds(layer_, CoordinateBasis::identity(kDim), trials_, default_executor());
  EXPECT_EQ(thresholds.at(kDim), trials_.thresholds);
  EXPECT_EQ(thresholds.at(kDim + 100), trials_.thresholds);
  EXPECT_EQ(thresholds.at(4), thresholds.at(8));
  double last = std::numeric_limits<double>::infinity();
  for (const std::size_t width : {8U, 16U, 32U, 48U, 64U}) {
    const Eigen::VectorXd missing = trials_.thresholds - thresholds.at(width);
    EXPECT_GE(missing.minCoeff(), 0.0) << width;
    EXPECT_LT(missing.mean(), last) << width;
    last = missing.mean();
  }
}

TEST(FoundThresholds, AreThoseOfAllRowsWhereTheseAreFew) {
  const SoftmaxLayer layer = testing::random_layer(3, 20, 5);
  const Trials trials(layer, random_matrix(4, 20, 6), kTokens, default_executor());
  const FoundThresholds thresholds(layer, CoordinateBasis::identity(20), trials, default_executor());
  EXPECT_EQ(thresholds.at(8), trials.thresholds);
}

}  // namespace
}  // namespace topksoftmax
