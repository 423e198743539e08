// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/products.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/executors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace topksoftmax {
namespace {

using Matrix = detail::DenseMatrix<double>;

/// One entry of A·B, summed in long double.
double entry(const Matrix& A, const Matrix& B, Eigen::Index i, Eigen::Index j) {
  long double sum = 0.0L;
  for (Eigen::Index n = 0; n < A.cols(); ++n) {
    sum += static_cast<long double>(A(i, n)) * static_cast<long double>(B(n, j));
  }
  return static_cast<double>(sum);
}

void expect_product(const Matrix& found, const Matrix& A, const Matrix& B) {
  ASSERT_EQ(found.rows(), A.rows());
  ASSERT_EQ(found.cols(), B.cols());
  double error = 0.0;
  for (Eigen::Index i = 0; i < found.rows(); ++i) {
    for (Eigen::Index j = 0; j < found.cols(); ++j) {
      error = std::max(error, std::abs(found(i, j) - entry(A, B, i, j)));
    }
  }
  EXPECT_LT(error, 1e-12 * static_cast<double>(A.cols()));
}

Matrix wide(Eigen::Index rows, Eigen::Index columns, unsigned seed) {
  return testing::random_matrix(rows, columns, seed).cast<double>();
}

TEST(Products, AreThoseOfAllPairs) {
  for (const unsigned dim : {1U, 64U, 65U, 150U}) {
    const Matrix X = wide(70, dim, dim);
    const Matrix S = detail::gram(X, SerialExecutor());
    expect_product(S, X.transpose(), X);
    EXPECT_EQ(S, S.transpose());
  }
  for (const unsigned rows : {1U, 1024U, 1025U}) {
    const Matrix A = wide(rows, 13, rows);
    const Matrix B = wide(13, 7, 1);
    expect_product(detail::product(A, B, SerialExecutor()), A, B);
  }
  EXPECT_EQ(detail::gram(Matrix(0, 3), SerialExecutor()), Matrix::Zero(3, 3));
}

TEST(Products, HaveTheSameBitsOnEveryExecutor) {
  const Matrix X = wide(2100, 150, 1);
  const Matrix B = wide(150, 40, 2);
  const testing::ReversedExecutor reversed;
  EXPECT_EQ(detail::gram(X, SerialExecutor()), detail::gram(X, reversed));
  EXPECT_EQ(detail::product(X, B, SerialExecutor()), detail::product(X, B, reversed));
}

}  // namespace
}  // namespace topksoftmax
