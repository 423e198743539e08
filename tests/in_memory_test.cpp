// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/in_memory.hpp"

#include <gtest/gtest.h>

#include "support/layers.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

using Columns = Eigen::MatrixXf;
using Rows = RowMajorMatrix;
using FixedRows = Eigen::Matrix<float, 4, 3, Eigen::RowMajor>;
using EverySecond = Eigen::Map<const Eigen::VectorXf, 0, Eigen::InnerStride<2>>;

static_assert(RowsInMemory<Rows> && RowsInMemory<FixedRows> && RowsInMemory<ConstRows>);
static_assert(RowsInMemory<Eigen::Block<const Rows>>);
static_assert(!RowsInMemory<Columns> && !RowsInMemory<Eigen::MatrixXd>);
static_assert(!RowsInMemory<decltype(Rows() + Rows())>);

static_assert(VectorInMemory<Eigen::VectorXf> && VectorInMemory<Eigen::RowVectorXf>);
static_assert(VectorInMemory<Eigen::Block<const Rows, 1, Eigen::Dynamic, true>>);
static_assert(!VectorInMemory<Rows> && !VectorInMemory<Eigen::VectorXd>);
static_assert(!VectorInMemory<EverySecond>);
static_assert(!VectorInMemory<Eigen::Block<FixedRows, 4, 1, false>>);

TEST(CheckContiguous, RefusesColumnsOfRows) {
  const Rows M = testing::random_matrix(4, 3, 1);
  EXPECT_NO_THROW(check_contiguous(M.row(1), "b"));
  EXPECT_THROW(check_contiguous(M.col(1), "b"), Error);
  EXPECT_THROW(check_contiguous(M.diagonal(), "b"), Error);
  EXPECT_NO_THROW(check_contiguous(M.topRows(1).col(1), "b")) << "a single value";
  EXPECT_NO_THROW(check_contiguous(Eigen::MatrixXf(M).col(1), "b"));
}

}  // namespace
}  // namespace topksoftmax
