// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/building/choice.hpp"

#include <gtest/gtest.h>

#include <cstddef>

#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"

namespace topksoftmax {
namespace {

// Most of the coordinates leave few rows above the true k-th logit, and many above what they find of it.
TEST(BoundChooser, CountsWhatPassesTheThresholdThatQueriesFind) {
  constexpr Eigen::Index kDim = 64;
  const SoftmaxLayer layer = SoftmaxLayer::own(testing::random_matrix(60000, kDim, 1, 0.125F));
  const RowMajorMatrix contexts = testing::random_matrix(600, kDim, 2, 3.0F);
  const auto head = Certified::build(layer, contexts.topRows(500), {.outside_sample = 0});
  std::size_t passing = 0;
  for (Eigen::Index i = 500; i < 600; ++i) {
    const TopK top = head->query(contexts.row(i).transpose(), {.k = 5, .probabilities = false});
    passing += top.work.screened - 60000;
  }
  EXPECT_LT(passing, 100U * 200U);
}

}  // namespace
}  // namespace topksoftmax
