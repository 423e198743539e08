// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/coordinates.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <Eigen/SVD>
#include <cmath>

#include "support/layers.hpp"

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

}  // namespace
}  // namespace topksoftmax
