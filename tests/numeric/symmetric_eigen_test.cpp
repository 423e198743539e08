// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/symmetric_eigen.hpp"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "support/layers.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax {
namespace {

using detail::symmetric_eigen;
using detail::SymmetricEigen;

/// Positive semidefinite, of so many rows and directions.
Eigen::MatrixXd moments(Eigen::Index n, Eigen::Index directions, unsigned seed) {
  const Eigen::MatrixXd X = testing::random_matrix(n, directions, seed).cast<double>();
  return X * X.transpose();
}

/// With the given eigenvalues, in directions of chance.
Eigen::MatrixXd with_values(const Eigen::VectorXd& values, unsigned seed) {
  const Eigen::MatrixXd X = testing::random_matrix(values.size(), values.size(), seed).cast<double>();
  const Eigen::MatrixXd Q = Eigen::HouseholderQR<Eigen::MatrixXd>(X).householderQ();
  return Q * values.asDiagonal() * Q.transpose();
}

/// A·V = V·diag(λ), VᵀV = I, λ falls, and is what Eigen's solver finds.
void expect_eigen(const Eigen::MatrixXd& A) {
  const Eigen::Index n = A.rows();
  const SymmetricEigen found = symmetric_eigen(A, SerialExecutor());
  const double largest = std::max(A.cwiseAbs().maxCoeff(), std::numeric_limits<double>::min());
  const double tolerance = 1e-14 * static_cast<double>(n);
  ASSERT_EQ(found.values.size(), n);
  for (Eigen::Index i = 1; i < n; ++i) EXPECT_GE(found.values[i - 1], found.values[i]);
  const Eigen::MatrixXd unit = A / largest;
  const Eigen::VectorXd values = found.values / largest;
  const Eigen::MatrixXd left = unit * found.vectors - found.vectors * values.asDiagonal();
  EXPECT_LE(left.cwiseAbs().maxCoeff(), tolerance);
  const Eigen::MatrixXd gram = found.vectors.transpose() * found.vectors;
  EXPECT_LE((gram - Eigen::MatrixXd::Identity(n, n)).cwiseAbs().maxCoeff(), tolerance);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> other(unit, Eigen::EigenvaluesOnly);
  EXPECT_LE((other.eigenvalues().reverse() - values).cwiseAbs().maxCoeff(), tolerance);
  Eigen::VectorXd alone = detail::symmetric_eigenvalues(A) / largest;
  std::sort(alone.begin(), alone.end());
  EXPECT_LE((other.eigenvalues() - alone).cwiseAbs().maxCoeff(), tolerance);
}

TEST(SymmetricEigen, IsFoundAtEverySize) {
  for (const Eigen::Index n : {1, 2, 3, 4, 15, 16, 17, 33, 100, 257}) {
    SCOPED_TRACE(n);
    expect_eigen(moments(n, n, static_cast<unsigned>(n)));
    const Eigen::MatrixXd X = testing::random_matrix(n, n, static_cast<unsigned>(n)).cast<double>();
    expect_eigen(X + X.transpose());  // with negative values
  }
}

TEST(SymmetricEigen, IsFoundWhereValuesAreEqualOrNone) {
  expect_eigen(Eigen::MatrixXd::Zero(20, 20));
  expect_eigen(Eigen::MatrixXd::Identity(20, 20));
  expect_eigen(Eigen::MatrixXd::Ones(40, 40));
  expect_eigen(moments(60, 3, 1));
  expect_eigen(Eigen::VectorXd::LinSpaced(30, -3.0, 3.0).asDiagonal());
  Eigen::VectorXd twice(50);
  for (Eigen::Index i = 0; i < 50; ++i) twice[i] = static_cast<double>(i / 2);
  expect_eigen(with_values(twice, 2));
}

TEST(SymmetricEigen, IsFoundAtEveryMagnitude) {
  Eigen::VectorXd graded(40);
  for (Eigen::Index i = 0; i < 40; ++i) graded[i] = std::exp2(-static_cast<double>(5 * i));
  expect_eigen(with_values(graded, 3));
  for (const double scale : {1e-300, 1e-160, 1e160, 1e300}) {
    SCOPED_TRACE(scale);
    expect_eigen(scale * with_values(graded, 4));
  }
}

// Wilkinson's W21+: pairs of values that differ by 1e-14.
TEST(SymmetricEigen, TellsValuesThatAreNearlyEqual) {
  Eigen::MatrixXd W = Eigen::MatrixXd::Zero(21, 21);
  for (Eigen::Index i = 0; i < 21; ++i) W(i, i) = std::abs(static_cast<double>(i) - 10.0);
  for (Eigen::Index i = 0; i < 20; ++i) W(i, i + 1) = W(i + 1, i) = 1.0;
  expect_eigen(W);
}

TEST(SymmetricEigen, IsTheSameOnEveryNumberOfThreads) {
  const Eigen::MatrixXd A = moments(150, 200, 6);
  const SymmetricEigen alone = symmetric_eigen(A, SerialExecutor());
  for (const std::size_t threads : {2U, 3U, 7U}) {
    const SymmetricEigen shared = symmetric_eigen(A, ThreadPool(threads));
    EXPECT_EQ(shared.values, alone.values) << threads;
    EXPECT_EQ(shared.vectors, alone.vectors) << threads;
  }
}

}  // namespace
}  // namespace topksoftmax
