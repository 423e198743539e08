// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/threshold.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "certified/made_up_bounds.hpp"
#include "topksoftmax/certified/bounded_rows.hpp"
#include "topksoftmax/certified/divided_bounds.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kPart = detail::kSearchedAtOnce;
constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Estimates of more rows than are searched at a time.
class MostPromising : public testing::MadeUpBounds {
 protected:
  void SetUp() override {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& estimate : estimates_) estimate = normal(random);
  }

  /// Those that are found on a crew of so many threads, ascending.
  std::vector<TokenId> find(std::size_t wanted, std::size_t threads = 1) {
    const detail::BoundedRows rows = {{.estimates = estimates_.data(), .count = estimates_.size()}};
    std::vector<TokenId> ids(detail::divided_room(rows.count));
    ids.resize(detail::most_promising(bounded(threads), rows, wanted, ids.data()));
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  /// The first so many by falling estimate, of equals the lower places, ascending.
  std::vector<TokenId> best(std::size_t wanted) const {
    std::vector<TokenId> ids(estimates_.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
      return estimates_[static_cast<std::size_t>(a)] > estimates_[static_cast<std::size_t>(b)];
    });
    ids.resize(wanted);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  std::vector<float> estimates_ = std::vector<float>(4 * kPart + 1000);
};

TEST_F(MostPromising, AreTheBestOfAllPartsOnEveryCrew) {
  for (const std::size_t wanted : {1U, 11U, 79U, 700U}) {
    for (const std::size_t threads : {1U, 2U, 3U, 4U}) {
      EXPECT_EQ(find(wanted, threads), best(wanted)) << wanted << " on " << threads;
    }
  }
}

TEST_F(MostPromising, MayAllBeOfOnePart) {
  for (std::size_t i = 0; i < kPart; ++i) estimates_[2 * kPart + i] += 100.0F;
  EXPECT_EQ(find(79), best(79));
  // Of other parts nothing may be answered.
  for (std::size_t i = 0; i < estimates_.size(); ++i) {
    if (i / kPart != 2) estimates_[i] = kNever;
  }
  EXPECT_EQ(find(79), best(79));
}

TEST_F(MostPromising, AreFoundAmongAllWhereNoPartHasEnough) {
  std::fill(estimates_.begin(), estimates_.end(), kNever);
  for (std::size_t i = 0; i < 30; ++i) estimates_[i * (estimates_.size() / 30)] = 1.0F;
  const std::vector<TokenId> found = find(11);
  EXPECT_GE(found.size(), 11U);
  for (const TokenId id : found) EXPECT_EQ(estimates_[static_cast<std::size_t>(id)], 1.0F);
  EXPECT_TRUE(find(31).empty());
}

}  // namespace
}  // namespace topksoftmax
