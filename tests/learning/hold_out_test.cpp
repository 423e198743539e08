// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/learning/hold_out.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

/// Contexts whose only coordinate is their number.
RowMajorMatrix numbered(Eigen::Index count) {
  RowMajorMatrix contexts(count, 1);
  for (Eigen::Index i = 0; i < count; ++i) contexts(i, 0) = static_cast<float>(i);
  return contexts;
}

TEST(HoldOut, TakesEvenlySpacedContextsAndAtMostHalfOfThem) {
  for (const Eigen::Index count : {0, 1, 2, 3, 10, 95, 192, 1000}) {
    for (const Eigen::Index most : {1, 7, 96}) {
      RowMajorMatrix kept = numbered(count);
      const RowMajorMatrix taken = detail::hold_out(kept, static_cast<std::size_t>(most));
      EXPECT_EQ(taken.rows(), std::min(most, count / 2));
      EXPECT_EQ(kept.rows() + taken.rows(), count);
      EXPECT_TRUE(std::is_sorted(kept.data(), kept.data() + kept.size()));
      std::vector<float> all(kept.data(), kept.data() + kept.size());
      all.insert(all.end(), taken.data(), taken.data() + taken.size());
      std::sort(all.begin(), all.end());
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i));
      for (Eigen::Index i = 1; i < taken.rows(); ++i) {
        const float apart = static_cast<float>(count) / static_cast<float>(taken.rows());
        EXPECT_NEAR(taken(i, 0) - taken(i - 1, 0), apart, 1.0F);
      }
    }
  }
}

}  // namespace
}  // namespace topksoftmax
