// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/building/panel_matrix.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <limits>

#include "support/layers.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

TEST(PanelMatrix, MultipliesAsTheMatrixDoes) {
  for (const Eigen::Index rows : {1, 40}) {
    for (const Eigen::Index columns : {1, 32, 33, 70}) {
      const Eigen::MatrixXd m = testing::random_matrix(rows, columns, 1).cast<double>();
      // Whatever stands behind what the matrix multiplies is not read.
      RowMajorMatrix X = testing::random_matrix(7, rows + 3, 2);
      X.rightCols(3).setConstant(std::numeric_limits<float>::quiet_NaN());
      const RowMajorMatrix found = detail::PanelMatrix(m).times(X);
      const Eigen::MatrixXd expected = X.leftCols(rows).cast<double>() * m;
      ASSERT_EQ(found.rows(), 7);
      ASSERT_GE(found.cols(), columns);
      EXPECT_LT((found.leftCols(columns).cast<double>() - expected).cwiseAbs().maxCoeff(), 1e-4);
      EXPECT_TRUE((found.rightCols(found.cols() - columns).array() == 0.0F).all());
    }
  }
}

TEST(PanelMatrix, TakesAnExpressionToo) {
  const Eigen::MatrixXd m = testing::random_matrix(20, 20, 1).cast<double>();
  const RowMajorMatrix X = testing::random_matrix(3, 20, 2);
  EXPECT_EQ(detail::PanelMatrix(m.transpose()).times(X),
            detail::PanelMatrix(Eigen::MatrixXd(m.transpose())).times(X));
}

}  // namespace
}  // namespace topksoftmax
