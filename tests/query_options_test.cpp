// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/query_options.hpp"

#include <gtest/gtest.h>

#include "support/layers.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

TEST(TokenMask, HasAWordForEverySixtyFourTokens) {
  EXPECT_EQ(AllowedTokens(TokenMask(1)).tokens(), 64U);
  EXPECT_EQ(AllowedTokens(TokenMask(64)).tokens(), 64U);
  EXPECT_EQ(AllowedTokens(TokenMask(65)).tokens(), 128U);
}

TEST(TokenMask, AllowsAndForbidsOneTokenAtATime) {
  TokenMask mask(130);
  for (const TokenId id : {0, 63, 64, 129}) mask.allow(id);
  mask.forbid(64);
  mask.forbid(65);
  for (TokenId id = 0; id < 130; ++id) EXPECT_EQ(mask.allows(id), id == 0 || id == 63 || id == 129) << id;
}

TEST(TokenMask, OfNoTokensIsRefused) {
  EXPECT_THROW(TokenMask(0), std::invalid_argument);  // not a mask that allows all
  EXPECT_THROW(TokenMask::all(0), std::invalid_argument);
}

TEST(TokenMask, RefusesWhatIsNoToken) {
  TokenMask mask(65);
  for (const TokenId id : {-1, 65, 127, 128, 1 << 30}) {
    EXPECT_THROW(mask.allow(id), std::invalid_argument) << id;
    EXPECT_THROW(mask.forbid(id), std::invalid_argument) << id;
    EXPECT_THROW(static_cast<void>(mask.allows(id)), std::invalid_argument) << id;
  }
  EXPECT_NO_THROW(mask.allow(64));
}

TEST(TokenMask, AllIsEveryTokenWhereverTheLastWordEnds) {
  for (const std::size_t vocab : {1U, 63U, 64U, 65U, 100U, 128U, 191U}) {
    const auto head = Fused::make(testing::random_layer(static_cast<Eigen::Index>(vocab), 5, 1));
    const Eigen::VectorXf h = testing::random_vector(5, 2);
    TokenMask mask = TokenMask::all(vocab);
    for (TokenId id = 0; id < static_cast<TokenId>(vocab); ++id) EXPECT_TRUE(mask.allows(id));
    const TopK answer = head->query(h, {.k = vocab, .allowed = mask});
    const TopK expected = head->query(h, {.k = vocab});
    EXPECT_EQ(answer.ids, expected.ids) << vocab;
    EXPECT_NEAR(answer.log_z, expected.log_z, 1e-5) << vocab;
    mask.forbid(static_cast<TokenId>(vocab) - 1);
    if (vocab > 1) {
      EXPECT_EQ(head->query(h, {.k = vocab, .allowed = mask}).size(), vocab - 1);
    }
  }
}

}  // namespace
}  // namespace topksoftmax
