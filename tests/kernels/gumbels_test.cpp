// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/numeric/gumbel_blocks.hpp"
#include "topksoftmax/numeric/split_mix.hpp"

namespace topksoftmax {
namespace {

using kernels::detail::Implementation;

class GumbelKernels : public ::testing::TestWithParam<Implementation> {};

TEST_P(GumbelKernels, ExponentialsAreThoseOfTheGumbels) {
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{42}, ~std::uint64_t{0}}) {
    const TokenGumbels gumbels(key);
    for (std::size_t count = 0; count < 70; ++count) {
      std::vector<TokenId> ids;
      for (std::size_t i = 0; i < count; ++i) {
        ids.push_back(static_cast<TokenId>((i * 1000003 + count) % 2000000000));
      }
      constexpr double kUntouched = -7.0;
      std::vector<double> least(count + 1, kUntouched);
      GetParam().least_exponentials(key, ids.data(), count, least.data());
      for (std::size_t i = 0; i < count; ++i) {
        const double exponential = std::exp(-gumbels[ids[i]]);
        ASSERT_LE(least[i], exponential * (1.0 + 1e-14)) << ids[i];
        if (exponential < 0.02) {
          ASSERT_GT(least[i], 0.99 * exponential) << ids[i];
        }
      }
      ASSERT_EQ(least[count], kUntouched);
    }
  }
}

TEST_P(GumbelKernels, BlocksAreThoseWhoseFirstNumbersAreAbove) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 52;
  for (const std::uint64_t key : {std::uint64_t{1}, std::uint64_t{99}}) {
    for (const std::size_t first : {std::size_t{0}, std::size_t{5}, std::size_t{100000000}}) {
      for (const std::size_t count : {0U, 1U, 7U, 8U, 9U, 64U, 201U}) {
        for (const std::uint64_t lowest : {std::uint64_t{0}, kAll / 10 * 9, kAll}) {
          std::vector<std::uint64_t> expected;
          for (std::size_t block = first; block < first + count; ++block) {
            const std::uint64_t random = detail::split_mix(key, detail::GumbelBlocks::kNumbers * block);
            if (random >> 12 >= lowest) expected.push_back(block);
          }
          std::vector<std::uint64_t> found(count + kernels::kSlack);
          found.resize(GetParam().blocks_above(key, first, count, lowest, found.data()));
          ASSERT_EQ(found, expected);
        }
      }
    }
  }
}

TEST_P(GumbelKernels, RanksAreThoseOfTheBlocksTokens) {
  constexpr std::size_t kRanked = detail::GumbelBlocks::kRanked;
  constexpr std::uint64_t kKey = 77;
  for (std::size_t count = 0; count < 40; ++count) {
    const std::size_t stride = count + kernels::kSlack + 3;
    std::vector<std::uint64_t> blocks(count + kernels::kSlack);
    for (std::size_t i = 0; i < count; ++i) blocks[i] = i * 12345;
    std::vector<double> least(kRanked * stride);
    std::vector<std::uint64_t> places(kRanked * stride);
    GetParam().ranks_of_blocks(kKey, blocks.data(), count, stride, least.data(), places.data());
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<TokenId> ids;
      for (std::size_t rank = 0; rank < kRanked; ++rank) {
        ids.push_back(static_cast<TokenId>(16 * blocks[i] + places[rank * stride + i]));
      }
      std::vector<double> expected(kRanked);
      GetParam().least_exponentials(kKey, ids.data(), kRanked, expected.data());
      for (std::size_t rank = 0; rank < kRanked; ++rank) {
        ASSERT_EQ(least[rank * stride + i], expected[rank]);
        if (rank > 0) {
          ASSERT_LT(least[(rank - 1) * stride + i], least[rank * stride + i]);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GumbelKernels,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
