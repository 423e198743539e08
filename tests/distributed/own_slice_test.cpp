// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/distributed/own_slice.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "support/layers.hpp"
#include "support/spans.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using detail::OwnSlice;
using detail::PartialAnswer;
using testing::random_layer;
using testing::random_vector;
using testing::span_of;

constexpr VocabularySlice kSlice = {100, 160, 300};
constexpr std::size_t kDim = 24;

Query query_of(const Eigen::VectorXf& h, std::size_t k) {
  Query query;
  query.h = h.data();
  query.k = k;
  return query;
}

/// A layer, and what the second of three ranks has of it.
struct OfThreeRanks {
  SoftmaxLayer whole = random_layer(300, kDim, 1);
  SoftmaxLayer part = slice_of(whole, kSlice);
  std::shared_ptr<const TopKSoftmax> backend = Certified::build(part);
  OwnSlice own{part, backend, kSlice, 3};
  Eigen::VectorXf h = random_vector(kDim, 2);
  Workspace workspace;

  Query query(std::size_t k) const { return query_of(h, k); }
};

struct Message {
  PartialAnswer part;
  std::vector<ScoredToken> tokens;
};

Message read(const std::vector<std::byte>& memory) {
  Message message;
  message.part =
      detail::read_message(memory.data(), [&message](ScoredToken token) { message.tokens.push_back(token); });
  return message;
}

std::vector<std::byte> room(std::size_t k) {
  return std::vector<std::byte>(PartialAnswer::message_bytes(k));
}

void expect_tokens(const Message& message, const TopK& expected) {
  ASSERT_EQ(message.tokens.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(message.tokens[i].id, expected.ids[i]) << i;
    EXPECT_EQ(message.tokens[i].logit, expected.logits[i]) << i;
  }
}

TEST(OwnSlice, WritesTheBestOfItsRows) {
  OfThreeRanks ranks;
  const TopK expected = Fused::make(ranks.part)->query(ranks.h, {.k = 5});
  std::vector<std::byte> memory = room(5);
  ranks.own.write_exact(QueryBatch(ranks.query(5)), ranks.workspace, memory.data(), memory.size());
  expect_tokens(read(memory), expected);
  EXPECT_NEAR(read(memory).part.sum.value(), expected.log_z, 1e-6);
  ranks.own.write_found(QueryBatch(ranks.query(5)), ranks.workspace, memory.data(), memory.size());
  expect_tokens(read(memory), expected);
  EXPECT_EQ(read(memory).part.normalizer, Normalizer::interval);
}

TEST(OwnSlice, WritesNoTokenWhereNoneMayBeReturned) {
  OfThreeRanks ranks;
  const std::vector<std::uint64_t> words = {1, 0, 0, 0, 0};  // token 0 alone, which another rank has
  Query query = ranks.query(5);
  query.edits.allowed = AllowedTokens(words.data(), words.size());
  std::vector<std::byte> memory = room(5);
  ranks.own.write_exact(QueryBatch(query), ranks.workspace, memory.data(), memory.size());
  EXPECT_TRUE(read(memory).tokens.empty());
  ranks.own.write_found(QueryBatch(query), ranks.workspace, memory.data(), memory.size());
  EXPECT_TRUE(read(memory).tokens.empty());
  float told = 0.0F;
  ranks.own.find_above(
      query, [&told](float own) { return told = own; }, ranks.workspace);
  EXPECT_EQ(told, detail::kNoThreshold);
  ranks.own.write_found_above(query, memory.data());
  EXPECT_TRUE(read(memory).tokens.empty());
}

TEST(OwnSlice, TellsALogitThatKOfItsRowsReach) {
  OfThreeRanks ranks;
  Query query = ranks.query(5);
  query.probabilities = false;
  const TopK expected = Fused::make(ranks.part)->query(ranks.h, {.k = 5});
  float told = 0.0F;
  ranks.own.find_above(
      query, [&told](float own) { return told = own; }, ranks.workspace);
  EXPECT_GT(told, detail::kNoThreshold);
  EXPECT_LE(told, expected.logits[4]);
  std::vector<std::byte> memory = room(5);
  ranks.own.write_found_above(query, memory.data());
  expect_tokens(read(memory), expected);
}

TEST(OwnSlice, LeavesOutWhatOtherRanksHaveMoreOf) {
  OfThreeRanks ranks;
  Query query = ranks.query(5);
  query.probabilities = false;
  const TopK expected = Fused::make(ranks.part)->query(ranks.h, {.k = 2});
  const float raised = expected.logits[1];
  ranks.own.find_above(
      query, [raised](float) { return raised; }, ranks.workspace);
  std::vector<std::byte> memory = room(5);
  ranks.own.write_found_above(query, memory.data());
  const Message message = read(memory);
  ASSERT_GE(message.tokens.size(), 2U);
  EXPECT_EQ(message.tokens[0].id, expected.ids[0]);
  EXPECT_EQ(message.tokens[1].id, expected.ids[1]);
}

TEST(OwnSlice, WritesTheLogitsOfThoseOfItsRowsThatAreAskedFor) {
  OfThreeRanks ranks;
  const std::vector<TokenId> rows = {159, 3, 100, 160, 99, 120, 100};
  std::vector<float> logits(rows.size(), -1.0F);
  ranks.own.write_logits_of(ranks.h.data(), rows, ranks.workspace, logits.data());
  std::vector<float> expected(4);
  ranks.backend->logits_of(span_of(ranks.h), std::vector<TokenId>{59, 0, 20, 0}, {}, ranks.workspace,
                           expected);
  expected.insert(expected.end(), 3, -1.0F);
  EXPECT_EQ(logits, expected);
}

TEST(OwnSlice, OfNoRowsWritesNothing) {
  const SoftmaxLayer none = SoftmaxLayer::own(RowMajorMatrix::Zero(1, kDim));
  OwnSlice own(none, nullptr, {300, 300, 300}, 3);
  Workspace workspace;
  const Eigen::VectorXf h = random_vector(kDim, 2);
  std::vector<std::byte> memory = room(5);
  own.write_found(QueryBatch(query_of(h, 5)), workspace, memory.data(), memory.size());
  EXPECT_TRUE(read(memory).tokens.empty());
  float logit = -1.0F;
  own.write_logits(QueryBatch(query_of(h, 5)), workspace, &logit);
  own.write_logits_of(h.data(), std::vector<TokenId>{7}, workspace, &logit);
  EXPECT_EQ(logit, -1.0F);
}

}  // namespace
}  // namespace topksoftmax
