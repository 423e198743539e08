// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/linear_algebra.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/layers.hpp"

namespace topksoftmax {
namespace {

Eigen::MatrixXd matrix(Eigen::Index rows, Eigen::Index columns, unsigned seed) {
  return testing::random_matrix(rows, columns, seed).cast<double>();
}

/// Whether each entry is the sum of at(i, j, n) over n < depth.
template <class At>
void expect_sums(const Eigen::MatrixXd& found, Eigen::Index rows, Eigen::Index columns, Eigen::Index depth,
                 const At& at) {
  ASSERT_EQ(found.rows(), rows);
  ASSERT_EQ(found.cols(), columns);
  for (Eigen::Index i = 0; i < rows; ++i) {
    for (Eigen::Index j = 0; j < columns; ++j) {
      long double sum = 0.0L;
      for (Eigen::Index n = 0; n < depth; ++n) sum += static_cast<long double>(at(i, j, n));
      EXPECT_NEAR(found(i, j), static_cast<double>(sum), 1e-12 * static_cast<double>(depth + 1))
          << i << " " << j;
    }
  }
}

TEST(LinearAlgebra, MultipliesMatricesAsTheyAreAndTransposed) {
  for (const Eigen::Index depth : {0, 1, 3, 70}) {
    SCOPED_TRACE(depth);
    const Eigen::MatrixXd A = matrix(19, depth, 1);
    const Eigen::MatrixXd B = matrix(depth, 23, 2);
    const Eigen::MatrixXd A_transposed = A.transpose();
    const Eigen::MatrixXd B_transposed = B.transpose();
    const auto product = [&](Eigen::Index i, Eigen::Index j, Eigen::Index n) { return A(i, n) * B(n, j); };
    expect_sums(detail::times(A, B), 19, 23, depth, product);
    expect_sums(detail::times_transposed(A, B_transposed), 19, 23, depth, product);
    expect_sums(detail::transposed_times(A_transposed, B), 19, 23, depth, product);
  }
}

TEST(LinearAlgebra, TakesBlocksVectorsAndOtherExpressions) {
  const Eigen::MatrixXd A = matrix(20, 30, 3);
  const Eigen::MatrixXd B = matrix(20, 30, 4);
  expect_sums(
      detail::times_transposed(A.block(2, 3, 9, 8), B.block(5, 1, 7, 8)), 9, 7, 8,
      [&](Eigen::Index i, Eigen::Index j, Eigen::Index n) { return A(2 + i, 3 + n) * B(5 + j, 1 + n); });
  expect_sums(detail::times_transposed(A.col(3), B.col(4)), 20, 20, 1,
              [&](Eigen::Index i, Eigen::Index j, Eigen::Index) { return A(i, 3) * B(j, 4); });
  const RowMajorMatrix in_rows = testing::random_matrix(6, 20, 5);
  expect_sums(detail::times(in_rows.cast<double>(), 2.0 * A), 6, 30, 20,
              [&](Eigen::Index i, Eigen::Index j, Eigen::Index n) {
                return 2.0 * static_cast<double>(in_rows(i, n)) * A(n, j);
              });
}

}  // namespace
}  // namespace topksoftmax
