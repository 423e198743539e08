// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/building/coordinates.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <cmath>
#include <cstddef>

#include "support/layers.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/layer_moments.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

using detail::ContextTransform;
using detail::CoordinateBasis;
using LongMatrix = Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>;

/// Rows of a random rotation.
Eigen::MatrixXd orthonormal_rows(Eigen::Index width, Eigen::Index dim) {
  const Eigen::MatrixXd random = testing::random_matrix(dim, width, 1).cast<double>();
  return Eigen::MatrixXd(random.householderQr().householderQ() * Eigen::MatrixXd::Identity(dim, width))
      .transpose();
}

/// ‖QQᵀ − I‖ of what is stored of Q, by its singular values.
double unorthogonality_of(const ContextTransform& transform) {
  const LongMatrix Q = detail::stored(transform.Q(), transform.room(), transform.width()).cast<long double>();
  const auto sigma = Q.jacobiSvd().singularValues();
  return static_cast<double>((sigma.array().square() - 1.0L).abs().maxCoeff());
}

TEST(Coordinates, TheirUnorthogonalityIsMeasuredAsTheyAreStored) {
  // Rounding to float16 alone, rows that are too short, and such as are too long.
  for (const double length : {1.0, 0.9, 1.1}) {
    const CoordinateBasis basis = {length * orthonormal_rows(12, 40), Eigen::MatrixXd::Identity(12, 12)};
    const ContextTransform transform = detail::transform_of(basis);
    const double measured = unorthogonality_of(transform);
    EXPECT_GT(measured, 1e-5);
    EXPECT_GE(transform.unorthogonality(), measured) << length;
    EXPECT_LE(transform.unorthogonality(), measured * (1.0 + 1e-6)) << length;
  }
}

TEST(Coordinates, NormsAreOfWhatIsStored) {
  const auto norm_of = [](const auto& values, const ContextTransform& transform) {
    return static_cast<double>(
        detail::stored(values, transform.room(), transform.width()).template cast<long double>().norm());
  };
  const Eigen::MatrixXd R = testing::random_matrix(12, 12, 2).cast<double>();
  const ContextTransform two = detail::transform_of({orthonormal_rows(12, 40), R});
  EXPECT_GE(two.norm(), norm_of(two.R(), two));
  EXPECT_LE(two.norm(), norm_of(two.R(), two) * (1.0 + 1e-6));
  const ContextTransform whole = detail::transform_of({orthonormal_rows(12, 12), R});
  ASSERT_TRUE(whole.is_whole());
  const auto norm = static_cast<double>(detail::stored(whole.whole(), 12).cast<long double>().norm());
  EXPECT_GE(whole.norm(), norm);
  EXPECT_LE(whole.norm(), norm * (1.0 + 1e-6));
}

TEST(Coordinates, BalancedMomentsAreEqualAndDiagonal) {
  const SoftmaxLayer layer = testing::random_layer(400, 24, 3);
  const RowMajorMatrix contexts = testing::clustered_contexts(300, 24, 6, 9);
  const detail::LearnedCoordinates learned(detail::layer_moments(layer, SerialExecutor()).gram(), contexts,
                                           BoundCoordinates::balanced, SerialExecutor());
  for (const std::size_t width : {8U, 24U}) {
    const CoordinateBasis basis = learned.basis(width, SerialExecutor());
    // h' = RQh, and rows have the coordinates w' for which QᵀRᵀw' is nearest to w.
    const Eigen::MatrixXd B = basis.R * basis.Q;
    const Eigen::MatrixXd W =
        B.transpose().householderQr().solve(layer.weights().cast<double>().transpose()).transpose();
    const auto scaled = [](const Eigen::MatrixXd& S) { return Eigen::MatrixXd(S / S(0, 0)); };
    const Eigen::MatrixXd H = contexts.cast<double>();
    const Eigen::MatrixXd of_all = detail::shrunk(detail::normalized(H.transpose() * H), 300);
    const Eigen::MatrixXd of_contexts = scaled(B * of_all * B.transpose());
    const Eigen::MatrixXd of_rows = scaled(W.transpose() * W);
    for (Eigen::Index i = 0; i < of_rows.rows(); ++i) {
      for (Eigen::Index j = 0; j < of_rows.cols(); ++j) {
        // Small moments of contexts are lifted.
        const double size = std::sqrt(of_rows(i, i) * of_rows(j, j));
        EXPECT_NEAR(of_contexts(i, j), i == j ? of_rows(i, i) : 0.0, 0.1 * size) << width << ": " << i << j;
        EXPECT_NEAR(of_rows(i, j), i == j ? of_rows(i, i) : 0.0, 1e-6 * size) << width << ": " << i << j;
      }
    }
  }
}

TEST(Coordinates, ShrinkTheMomentOfASampleAsItsSizeSays) {
  // By hand, from the paper's formula.
  Eigen::MatrixXd one = Eigen::MatrixXd::Zero(4, 4);
  one(0, 0) = 1.0;
  const double share = 1.5 / (10.5 * 0.75);
  const Eigen::MatrixXd found = detail::shrunk(one, 10);
  EXPECT_NEAR(found(0, 0), 1.0 - share + share / 4.0, 1e-12);
  EXPECT_NEAR(found(2, 2), share / 4.0, 1e-12);
  EXPECT_EQ(found(0, 2), 0.0);
  // Nothing is known of other directions, or all directions are alike.
  EXPECT_TRUE(detail::shrunk(one, 1).isApprox(Eigen::MatrixXd::Identity(4, 4) / 4.0));
  const Eigen::MatrixXd alike = Eigen::MatrixXd::Identity(4, 4) / 4.0;
  EXPECT_TRUE(detail::shrunk(alike, 1000).isApprox(alike));
  EXPECT_TRUE(detail::shrunk(Eigen::MatrixXd::Zero(4, 4), 5).isApprox(alike));
  EXPECT_EQ(detail::shrunk(Eigen::MatrixXd::Ones(1, 1), 3)(0, 0), 1.0);
}

TEST(Coordinates, AShrunkMomentIsNearerToTheTruth) {
  constexpr Eigen::Index kDim = 40;
  const Eigen::ArrayXd roots = Eigen::ArrayXd::LinSpaced(kDim, 1.0, kDim).inverse().sqrt();
  const Eigen::MatrixXd truth = detail::normalized(Eigen::MatrixXd(roots.square().matrix().asDiagonal()));
  for (const Eigen::Index count : {5, 20, 100, 5000}) {
    Eigen::MatrixXd X = testing::random_matrix(count, kDim, 4).cast<double>();
    X.array().rowwise() *= roots.transpose();
    const Eigen::MatrixXd S = detail::normalized(X.transpose() * X);
    const Eigen::MatrixXd shrunk = detail::shrunk(S, static_cast<std::size_t>(count));
    EXPECT_NEAR(shrunk.trace(), 1.0, 1e-12);
    const double off = (S - truth).norm();
    const double off_shrunk = (shrunk - truth).norm();
    EXPECT_LT(off_shrunk, (count < 50 ? 0.9 : 1.01) * off) << count;
  }
}

TEST(Coordinates, AMomentThatRoundingsMadeIndefiniteIsLiftedFurther) {
  Eigen::MatrixXd S = Eigen::VectorXd::LinSpaced(8, 1.0, 0.0).asDiagonal();
  S(7, 7) = -0.01;
  const Eigen::MatrixXd L = detail::lifted_cholesky(S).matrixL();
  ASSERT_TRUE(L.allFinite());
  EXPECT_NEAR(L(0, 0) * L(0, 0), 1.0, 0.02);
  EXPECT_GT(L(7, 7), 0.0);
}

}  // namespace
}  // namespace topksoftmax
