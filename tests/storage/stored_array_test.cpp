// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/storage/stored_array.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <memory>
#include <span>
#include <vector>

namespace topksoftmax {
namespace {

TEST(StoredArray, KeepsWhatItOwnsWhereItIs) {
  StoredArray<int> copy;
  EXPECT_EQ(copy.size(), 0U);
  std::vector<int> values = {3, 1, 2};
  const int* const at = values.data();
  {
    const auto array = StoredArray<int>::own(std::move(values));
    EXPECT_EQ(array.data(), at);
    copy = array;
  }
  EXPECT_EQ(copy.data(), at);
  EXPECT_EQ(std::vector<int>(copy.begin(), copy.end()), (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(copy[2], 2);
  const auto matrix = StoredArray<float>::own(Eigen::MatrixXf(Eigen::MatrixXf::Constant(2, 3, 7.0F)));
  EXPECT_EQ(matrix.size(), 6U);
  EXPECT_EQ(matrix[5], 7.0F);
}

TEST(StoredArray, BorrowsWithoutOwning) {
  const std::vector<int> values = {1, 2};
  const auto array = StoredArray<int>::borrow(values);
  EXPECT_EQ(array.data(), values.data());
  EXPECT_EQ(array.owner(), nullptr);
}

TEST(StoredArray, SharesAnOwner) {
  const auto owner = std::make_shared<const std::vector<int>>(std::vector<int>{1, 2, 3});
  const std::span<const int> all(*owner);
  const StoredArray<int> part(all.subspan(1), owner);
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(part[0], 2);
}

}  // namespace
}  // namespace topksoftmax
