// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/kept_query.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "support/same_answers.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

TEST(KeptQuery, OutlivesTheMaskAndTheBiases) {
  const auto head = Fused::make(testing::random_layer(100, 8, 1));
  const Eigen::VectorXf h = testing::random_vector(8, 2);
  detail::KeptQuery kept;
  TopK expected;
  {
    std::vector<std::int32_t> words(4, 0x0F0F0F0F);
    std::vector<TokenBias> biases = {{1, 2.0F}, {98, 5.0F}};
    const QueryOptions query = {.k = 7, .allowed = words, .logit_bias = biases, .log_z_tolerance = 0.5};
    expected = head->query(h, query);
    kept.keep(query);
    std::fill(words.begin(), words.end(), 0);
    biases.assign(2, {0, -1.0F});
  }
  const detail::KeptQuery moved = std::move(kept);
  EXPECT_EQ(moved.query().k, 7U);
  EXPECT_EQ(moved.query().log_z_tolerance, 0.5);
  testing::expect_same(head->query(h, moved.query()), expected);
}

TEST(KeptQuery, ForgetsTheOneBefore) {
  detail::KeptQuery kept;
  const std::vector<std::uint64_t> words(2, 5);
  const std::vector<TokenBias> biases = {{1, 2.0F}};
  kept.keep({.allowed = words, .logit_bias = biases});
  EXPECT_EQ(kept.query().allowed.tokens(), 128U);
  kept.keep({.k = 2});
  EXPECT_TRUE(kept.query().allowed.empty());
  EXPECT_TRUE(kept.query().logit_bias.empty());
}

TEST(KeptQuery, HasAsManyBitsAsItsMask) {  // so that one that is too short is refused
  detail::KeptQuery kept;
  const std::vector<std::uint32_t> words(3, ~0U);
  kept.keep({.allowed = words});
  EXPECT_EQ(kept.query().allowed.tokens(), 96U);
  EXPECT_TRUE(kept.query().allowed.allows(95));
}

}  // namespace
}  // namespace topksoftmax
