// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/inverse.hpp"

#include <gtest/gtest.h>

#include "support/layers.hpp"

namespace topksoftmax {
namespace {

TEST(Inverse, TimesTheMatrixIsTheIdentity) {
  for (const Eigen::Index n : {1, 2, 5, 40}) {
    SCOPED_TRACE(n);
    const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(n, n);
    const Eigen::MatrixXd A =
        testing::random_matrix(n, n, static_cast<unsigned>(n)).cast<double>() + 3.0 * identity;
    const Eigen::MatrixXd found = detail::inverse(A);
    EXPECT_LE((A * found - identity).cwiseAbs().maxCoeff(), 1e-10);
    EXPECT_LE((found * A - identity).cwiseAbs().maxCoeff(), 1e-10);
  }
}

}  // namespace
}  // namespace topksoftmax
