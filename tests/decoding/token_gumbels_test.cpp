// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/token_gumbels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "support/statistics.hpp"
#include "topksoftmax/decoding/random_stream.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kCells = 50;
constexpr int kKeys = 20000;

/// Where x falls among cells that are equally likely for a Gumbel whose exponential has the mean 1/rate.
std::size_t cell(double gumbel, double rate = 1.0) {
  const double uniform = std::exp(-rate * std::exp(-gumbel));
  return std::min(static_cast<std::size_t>(uniform * kCells), kCells - 1);
}

const std::vector<double> kEqual(kCells, 1.0 / kCells);

TEST(TokenGumbels, EachHasTheGumbelDistribution) {
  for (const TokenId id : {0, 5, 15, 16, 1000003}) {
    RandomStream random(7);
    std::vector<std::size_t> counts(kCells);
    for (int i = 0; i < kKeys; ++i) ++counts[cell(TokenGumbels(random.bits())[id])];
    EXPECT_LT(testing::chi_square_deviations(counts, kEqual), 4.0) << id;
  }
}

TEST(TokenGumbels, TokensOfOneKeyAreDistributedSoToo) {
  const TokenGumbels gumbels(3);
  std::vector<std::size_t> counts(kCells);
  for (TokenId id = 0; id < 100000; ++id) ++counts[cell(gumbels[id])];
  EXPECT_LT(testing::chi_square_deviations(counts, kEqual), 4.0);
}

TEST(TokenGumbels, NeighboursAreIndependent) {
  constexpr std::size_t side = 7;
  for (const TokenId other : {1, 15, 16, 40}) {
    RandomStream random(11);
    std::vector<std::size_t> counts(side * side);
    for (int i = 0; i < kKeys; ++i) {
      const TokenGumbels gumbels(random.bits());
      const auto at = [&](TokenId id) { return cell(gumbels[id]) * side / kCells; };
      ++counts[at(0) * side + at(other)];
    }
    // Cells of a fiftieth make sevenths that are not quite equal.
    std::vector<double> share(side);
    for (std::size_t i = 0; i < kCells; ++i) share[i * side / kCells] += 1.0 / kCells;
    std::vector<double> expected;
    for (const double a : share) {
      for (const double b : share) expected.push_back(a * b);
    }
    EXPECT_LT(testing::chi_square_deviations(counts, expected), 4.0) << other;
  }
}

TEST(TokenGumbels, TheLargestOfABlockIsThatOfItsTokens) {
  std::vector<std::size_t> counts(kCells);
  std::vector<std::size_t> places(TokenGumbels::kBlock);
  RandomStream random(5);
  for (int i = 0; i < kKeys; ++i) {
    const TokenGumbels gumbels(random.bits());
    std::vector<double> values;
    for (std::size_t j = 0; j < TokenGumbels::kBlock; ++j) {
      values.push_back(gumbels[static_cast<TokenId>(2 * TokenGumbels::kBlock + j)]);
    }
    const auto largest = std::max_element(values.begin(), values.end());
    ASSERT_EQ(*largest, gumbels.largest_of(2));
    ++counts[cell(*largest, static_cast<double>(TokenGumbels::kBlock))];
    ++places[static_cast<std::size_t>(largest - values.begin())];
  }
  EXPECT_LT(testing::chi_square_deviations(counts, kEqual), 4.0);
  const std::vector<double> equal(places.size(), 1.0 / static_cast<double>(places.size()));
  EXPECT_LT(testing::chi_square_deviations(places, equal), 4.0);
}

TEST(TokenGumbels, TheSecondLargestOfABlockIsAnyOfItsTokens) {
  constexpr std::size_t kPairs = TokenGumbels::kBlock * TokenGumbels::kBlock;
  constexpr double kOrdered = static_cast<double>(TokenGumbels::kBlock * (TokenGumbels::kBlock - 1));
  std::vector<std::size_t> pairs(kPairs);
  std::vector<double> expected(kPairs, 1.0 / kOrdered);
  for (std::size_t i = 0; i < TokenGumbels::kBlock; ++i) expected[i * TokenGumbels::kBlock + i] = 0.0;
  RandomStream random(9);
  for (int i = 0; i < kKeys; ++i) {
    const TokenGumbels gumbels(random.bits());
    std::vector<std::size_t> places(TokenGumbels::kBlock);
    std::iota(places.begin(), places.end(), 0);
    std::partial_sort(places.begin(), places.begin() + 2, places.end(), [&](std::size_t a, std::size_t b) {
      return gumbels[static_cast<TokenId>(a)] > gumbels[static_cast<TokenId>(b)];
    });
    ++pairs[places[0] * TokenGumbels::kBlock + places[1]];
  }
  EXPECT_LT(testing::chi_square_deviations(pairs, expected), 4.0);
}

TEST(TokenGumbels, EveryRankOfABlockIsAnyOfItsTokens) {
  constexpr std::size_t kRanks = 5;
  RandomStream random(21);
  std::vector<std::vector<std::size_t>> counts(kRanks, std::vector<std::size_t>(TokenGumbels::kBlock));
  std::vector<std::vector<std::size_t>> excesses(kRanks, std::vector<std::size_t>(kCells));
  for (int i = 0; i < kKeys; ++i) {
    const TokenGumbels gumbels(random.bits());
    std::vector<std::size_t> places(TokenGumbels::kBlock);
    std::iota(places.begin(), places.end(), 0);
    const auto exponential = [&](std::size_t place) {
      return std::exp(-gumbels[static_cast<TokenId>(place)]);
    };
    std::sort(places.begin(), places.end(),
              [&](std::size_t a, std::size_t b) { return exponential(a) < exponential(b); });
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      ++counts[rank][places[rank]];
      // What it exceeds the one before by is exponential, of the mean 1/(tokens that are left).
      const double before = rank == 0 ? 0.0 : exponential(places[rank - 1]);
      const double excess = exponential(places[rank]) - before;
      const auto left = static_cast<double>(TokenGumbels::kBlock - rank);
      ++excesses[rank][cell(-std::log(excess), left)];
    }
  }
  const std::vector<double> equal(TokenGumbels::kBlock, 1.0 / static_cast<double>(TokenGumbels::kBlock));
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_LT(testing::chi_square_deviations(counts[rank], equal), 4.0) << rank;
    EXPECT_LT(testing::chi_square_deviations(excesses[rank], kEqual), 4.0) << rank;
  }
}

TEST(TokenGumbels, VisitsAllThatMayBeAboveALimit) {
  std::size_t above = 0;
  std::size_t visits = 0;
  for (const std::size_t vocab : {1U, 15U, 16U, 17U, 1000U, 1025U}) {
    for (const double limit : {-40.0, -1.5, 0.0, 2.0, 6.0, 40.0}) {
      for (std::uint64_t key = 0; key < 40; ++key) {
        const TokenGumbels gumbels(key);
        std::vector<bool> visited(vocab);
        gumbels.visit_possible(limit, vocab, [&](TokenId id, double least) {
          ASSERT_LE(gumbels[id], -std::log(least));
          ASSERT_GT(-std::log(least), limit - 1e-9);
          ASSERT_FALSE(visited[static_cast<std::size_t>(id)]) << "twice";
          visited[static_cast<std::size_t>(id)] = true;
          visits += limit >= 2.0 ? 1U : 0U;
        });
        for (std::size_t token = 0; token < vocab; ++token) {
          if (gumbels[static_cast<TokenId>(token)] <= limit) continue;
          ASSERT_TRUE(visited[token]) << vocab << " " << limit;
          above += limit >= 2.0 ? 1U : 0U;
        }
      }
    }
  }
  // Where the limit is high, few are visited in vain.
  EXPECT_GT(above, 1000U);
  EXPECT_LT(visits, above * 3 / 2);
}

TEST(TokenGumbels, TheirExponentialsAreNoLessThanIsSaid) {
  std::size_t close = 0;
  std::size_t small = 0;
  for (std::uint64_t key = 0; key < 100; ++key) {
    const TokenGumbels gumbels(key);
    std::vector<TokenId> ids;
    for (TokenId i = 0; i < static_cast<TokenId>(200 + key % 8); ++i) ids.push_back((i * 7919) % 262144);
    std::vector<double> least(ids.size());
    gumbels.least_exponentials(ids, least.data());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const double exponential = std::exp(-gumbels[ids[i]]);
      ASSERT_LE(least[i], exponential * (1.0 + 1e-14));
      if (exponential > 0.005) continue;
      ++small;
      close += least[i] > 0.999 * exponential ? 1U : 0U;
    }
  }
  EXPECT_GT(small, 50U);
  EXPECT_EQ(close, small);
}

TEST(TokenGumbels, WhatReachesANumberMayReachIt) {
  std::size_t far = 0;
  std::size_t ruled_out = 0;
  for (std::uint64_t key = 0; key < 200; ++key) {
    const TokenGumbels gumbels(key);
    for (std::size_t block = 0; block < 50; ++block) {
      const double largest = gumbels.largest_of(block);
      ASSERT_TRUE(gumbels.largest_may_reach(block, largest)) << largest;
      ASSERT_TRUE(gumbels.largest_may_reach(block, -largest)) << largest;
      ASSERT_TRUE(gumbels.largest_may_reach(block, -std::numeric_limits<double>::infinity()));
      ASSERT_FALSE(gumbels.largest_may_reach(block, std::numeric_limits<double>::infinity()));
      ++far;
      ruled_out += gumbels.largest_may_reach(block, largest + 2.0) ? 0U : 1U;
    }
  }
  EXPECT_GT(ruled_out, far * 9 / 10);
}

TEST(TokenGumbels, AreTheSameOnEveryPlatform) {
  const TokenGumbels gumbels(42);
  // By another implementation, in Python.
  EXPECT_NEAR(gumbels[0], 1.5274925761111344, 1e-12);   // the third of its block
  EXPECT_NEAR(gumbels[4], 1.9597298186624108, 1e-12);   // the second
  EXPECT_NEAR(gumbels[17], 1.9393287720028132, 1e-12);  // of no rank
  EXPECT_NEAR(gumbels[8], -1.036239852372305, 1e-12);
}

}  // namespace
}  // namespace topksoftmax
