// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/allowed_tokens.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "conformance/backends.hpp"
#include "support/layers.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax {
namespace {

/// Every third token of `vocab`, in words of 32 bits.
std::vector<std::uint32_t> every_third(std::size_t vocab) {
  std::vector<std::uint32_t> words((vocab + 31) / 32);
  for (std::size_t t = 0; t < vocab; t += 3) words[t / 32] |= std::uint32_t{1} << (t % 32);
  return words;
}

TEST(AllowedTokens, ReadWordsOfEitherSize) {
  const std::array<std::uint64_t, 2> wide = {0x8000'0001'0000'0003U, 0x5U};
  const std::array<std::uint32_t, 3> narrow = {0x3U, 0x8000'0001U, 0x5U};
  const std::array<std::int32_t, 3> grammar = {0x3, static_cast<std::int32_t>(0x8000'0001U), 0x5};
  for (const AllowedTokens& allowed : {AllowedTokens(wide), AllowedTokens(narrow), AllowedTokens(grammar)}) {
    EXPECT_EQ(allowed.block(0), wide[0]);
    EXPECT_EQ(allowed.block(1), wide[1]);
    EXPECT_EQ(allowed.block(2), 0U);
    EXPECT_EQ(allowed.count(96), 6U);
    EXPECT_EQ(allowed.count(66), 5U);
    for (const TokenId id : {0, 1, 32, 63, 64, 66}) EXPECT_TRUE(allowed.allows(id)) << id;
    for (const TokenId id : {2, 31, 33, 62, 65, 67}) EXPECT_FALSE(allowed.allows(id)) << id;
  }
  EXPECT_EQ(AllowedTokens(wide).tokens(), 128U);
  EXPECT_EQ(AllowedTokens(narrow).tokens(), 96U);
}

TEST(AllowedTokens, AreVisitedInRisingOrder) {
  const std::array<std::uint32_t, 3> words = {0xFFFF'FFFDU, 0x7FFF'FFFFU, 0x6U};
  const auto visited = [](const AllowedTokens& of, std::size_t vocab, bool allowed) {
    std::vector<TokenId> ids;
    const auto add = [&](TokenId id) { ids.push_back(id); };
    allowed ? of.visit_allowed(vocab, add) : of.visit_forbidden(vocab, add);
    return ids;
  };
  for (const std::size_t vocab : {2U, 64U, 66U, 128U}) {
    std::vector<TokenId> ids[2];
    for (std::size_t t = 0; t < vocab; ++t) {
      const auto id = static_cast<TokenId>(t);
      ids[AllowedTokens(words).allows(id) ? 1 : 0].push_back(id);
    }
    EXPECT_EQ(visited(words, vocab, false), ids[0]);
    EXPECT_EQ(visited(words, vocab, true), ids[1]);
  }
  EXPECT_EQ(visited({}, 3, true), (std::vector<TokenId>{0, 1, 2}));
  EXPECT_TRUE(visited({}, 3, false).empty());
}

TEST(AllowedTokens, WithoutWordsAreAll) {
  const AllowedTokens all;
  EXPECT_TRUE(all.empty());
  EXPECT_TRUE(all.allows(1000));
  EXPECT_EQ(all.count(77), 77U);
}

TEST(AllowedTokens, OfThirtyTwoBitsGiveTheAnswersOfAMask) {
  for (const Eigen::Index vocab : {280, 300}) {  // of the last 64 bits, half are there, and all
    const auto tokens = static_cast<std::size_t>(vocab);
    const SoftmaxLayer layer = testing::random_layer(vocab, 24, 1);
    const RowMajorMatrix contexts = testing::clustered_contexts(200, 24, 6, 2);
    // Of this size exactly: what reads behind it is caught by address sanitizer.
    const std::vector<std::uint32_t> source = every_third(tokens);
    const std::unique_ptr<std::uint32_t[]> words(new std::uint32_t[source.size()]);
    std::copy(source.begin(), source.end(), words.get());
    const AllowedTokens allowed(words.get(), source.size());
    TokenMask mask(tokens);
    for (std::size_t t = 0; t < tokens; t += 3) mask.allow(static_cast<TokenId>(t));
    for (const testing::Backend& backend : testing::all_backends()) {
      const auto head = backend.make(layer, contexts);
      const TopK found = head->query(contexts.row(0), {.k = 5, .allowed = allowed});
      const TopK expected = head->query(contexts.row(0), {.k = 5, .allowed = mask});
      EXPECT_EQ(found.ids, expected.ids) << backend.name;
      EXPECT_EQ(found.logits, expected.logits) << backend.name;
      EXPECT_EQ(found.log_z, expected.log_z) << backend.name;
    }
  }
}

}  // namespace
}  // namespace topksoftmax
