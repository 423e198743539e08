// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/best_row.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {
namespace {

using detail::BestRow;
using detail::StoredRows;

/// The first of the rows with the largest product, as float32 has it.
std::size_t expected_row(const BestRow& best, const float* h) {
  std::vector<float> products(best.count());
  kernels::scan(best.rows(), 0, best.count(), h, products.data());
  return static_cast<std::size_t>(std::max_element(products.begin(), products.end()) - products.begin());
}

/// Returns what was found.
std::size_t expect_found(const RowMajorMatrix& rows, const Eigen::VectorXf& h) {
  const BestRow best((StoredRows(rows)));
  Workspace workspace;
  const std::size_t found = best.find(h.data(), workspace).row;
  EXPECT_EQ(found, expected_row(best, h.data()));
  return found;
}

TEST(BestRow, IsFoundAtEveryCountAndDimensionWithoutMostOfTheRows) {
  std::size_t asked = 0;
  std::size_t pruned = 0;
  for (const Eigen::Index dim : {1, 2, 3, 5, 31, 64, 200, 257, 1024, 4096, 4097, 16384, 16385}) {
    for (const Eigen::Index count : {1, 2, 31, 32, 33, 100, 257}) {
      const auto seed = static_cast<unsigned>(dim + count);
      const BestRow best(StoredRows(testing::random_matrix(count, dim, seed)));
      EXPECT_GE(best.bytes(), static_cast<std::size_t>(4 * count * dim));
      Workspace workspace;
      for (unsigned i = 0; i < 10; ++i) {
        const Eigen::VectorXf h = testing::random_vector(dim, seed + i);
        const BestRow::Found found = best.find(h.data(), workspace);
        ASSERT_EQ(found.row, expected_row(best, h.data())) << count << " × " << dim;
        if (count < 32 || dim < 31 || dim > 16384) continue;
        ++asked;
        if (found.bytes_read < best.rows().bytes(best.count()) / 2) ++pruned;
      }
    }
  }
  EXPECT_GE(2 * pruned, asked);
  EXPECT_GT(asked, 100U);
}

TEST(BestRow, OfEqualsIsTheLowest) {
  constexpr Eigen::Index kDim = 48;
  RowMajorMatrix rows = testing::random_matrix(100, kDim, 3);
  const Eigen::VectorXf h = testing::random_vector(kDim, 4);
  for (const Eigen::Index row : {17, 40, 99}) rows.row(row) = 5.0F * h;
  EXPECT_EQ(expect_found(rows, h), 17U);
}

TEST(BestRow, RowsThatDifferByAnUlpAreToldApart) {
  constexpr Eigen::Index kDim = 65;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const Eigen::VectorXf h = testing::random_vector(kDim, seed);
    RowMajorMatrix rows = h.transpose().replicate(64, 1);
    std::mt19937 engine(seed);
    for (Eigen::Index r = 0; r < rows.rows(); ++r) {
      float& weight = rows(r, static_cast<Eigen::Index>(engine() % kDim));
      weight = std::nextafter(weight, engine() % 2 == 0 ? 9.0F : -9.0F);
    }
    expect_found(rows, h);
  }
}

/// Rows of which one is wrong in its bytes where the context is: 0.39 is half a step of 100/127.
RowMajorMatrix coarsely_rounded_rows(Eigen::Index dim) {
  RowMajorMatrix rows = RowMajorMatrix::Constant(40, dim, 0.2F);
  rows.row(25).setConstant(0.39F);
  rows(25, 0) = 100.0F;
  return rows;
}

TEST(BestRow, ByteThatIsFarFromItsWeightIsAllowedFor) {
  constexpr Eigen::Index kDim = 64;
  const RowMajorMatrix rows = coarsely_rounded_rows(kDim);
  Eigen::VectorXf h = Eigen::VectorXf::Ones(kDim);
  h[0] = 0.0F;
  expect_found(rows, h);
  // So short that the squares of its coordinates vanish, and that it is nothing but zeros.
  expect_found(rows, h * 1e-24F);
  expect_found(rows, h * 1e-42F);
  expect_found(rows, h * 0.0F);
}

TEST(BestRow, AContextThatRoundsToZeroIsAllowedFor) {
  constexpr Eigen::Index kDim = 1024;
  // Of a step of 1/16256, 2e-5 is a third. The bytes of row 30 are exact.
  Eigen::VectorXf h = Eigen::VectorXf::Constant(kDim, 2e-5F);
  h[0] = 1.0F;
  RowMajorMatrix rows = RowMajorMatrix::Zero(40, kDim);
  rows.col(0).setConstant(1.25F);
  rows.row(30).setConstant(127.0F);
  rows(30, 0) = 0.0F;
  EXPECT_EQ(expect_found(rows, h), 30U);
}

TEST(BestRow, ProductsAreComparedAsFloat32HasThem) {
  // Whole numbers, which bytes and shorts hold as they are; products of float32 lose some hundreds, and the
  // largest of them is not the largest real one.
  constexpr Eigen::Index kDim = 1024;
  std::size_t misled = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 engine(seed);
    std::uniform_int_distribution<int> weight(64, 127);
    std::uniform_int_distribution<int> coordinate(8000, 16256);
    Eigen::VectorXf h(kDim);
    for (float& value : h) value = static_cast<float>(coordinate(engine));
    h[0] = 16256.0F;
    h[1] = 1.0F;
    h.tail(kDim / 2) = -h.head(kDim / 2);
    h[kDim - 1] = 1.0F;
    RowMajorMatrix rows(64, kDim);
    for (Eigen::Index r = 0; r < rows.rows(); ++r) {
      for (Eigen::Index j = 0; j < kDim / 2; ++j) {
        rows(r, j) = static_cast<float>(weight(engine));
        rows(r, j + kDim / 2) = rows(r, j);
      }
      rows(r, 0) = rows(r, kDim / 2) = 127.0F;
      rows(r, kDim - 1) = static_cast<float>(engine() % 10);
    }
    const BestRow best((StoredRows(rows)));
    Workspace workspace;
    const std::size_t expected = expected_row(best, h.data());
    EXPECT_EQ(best.find(h.data(), workspace).row, expected);
    const Eigen::VectorXd real = rows.cast<double>() * h.cast<double>();
    if (real[static_cast<Eigen::Index>(expected)] < real.maxCoeff()) ++misled;
  }
  EXPECT_GE(misled, 5U) << "no rounding that tells";
}

TEST(BestRow, ProductsThatOverflowAreTakenAsTheyAre) {
  constexpr Eigen::Index kDim = 40;
  RowMajorMatrix rows = testing::random_matrix(64, kDim, 7);
  Eigen::VectorXf h = testing::random_vector(kDim, 8);
  expect_found(rows * 1e30F, h * 1e9F);
  expect_found(rows * 1e30F, h * 1e6F);
  expect_found(rows * 1e38F, h);
  rows *= 1e38F;
  rows(50, 3) = std::numeric_limits<float>::infinity();
  expect_found(rows, h);
  // What is no context: the answer is some row.
  h[0] = std::numeric_limits<float>::quiet_NaN();
  const BestRow best((StoredRows(rows)));
  Workspace workspace;
  EXPECT_LT(best.find(h.data(), workspace).row, 64U);
}

}  // namespace
}  // namespace topksoftmax
