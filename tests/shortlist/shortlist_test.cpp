// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/shortlist/shortlist.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/shortlist/build.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_vector;

constexpr Eigen::Index kVocab = 100;
constexpr Eigen::Index kDim = 10;

std::vector<std::int64_t> rising_counts() {
  std::vector<std::int64_t> counts;
  for (Eigen::Index i = 0; i < kVocab; ++i) counts.push_back(i);
  return counts;
}

AlignmentLists lists() {
  const std::vector<std::string> source = {"s0", "s1", "s2"};
  std::vector<std::string> target;
  for (int i = 0; i < kVocab; ++i) target.push_back(std::string("t").append(std::to_string(i)));
  std::istringstream in("t5 s0 0.5\nt7 s0 0.4\nt99 s1 0.5\nt5 s1 0.1\nt20 s2 1\n");
  return AlignmentLists::read(in, "lex", source, target);
}

std::vector<TokenId> list_of(const Shortlist& head) {
  const auto tokens = head.screener().tokens();
  return {tokens.begin(), tokens.end()};
}

/// The exact best among the tokens of a list.
void expect_best_of(const std::vector<TokenId>& list, const Shortlist& head, const Eigen::VectorXf& h) {
  TokenMask mask(head.layer().vocab());
  for (const TokenId id : list) mask.allow(id);
  const TopK expected = Exact::make(head.layer())->query(h, {.k = 3, .allowed = mask});
  const TopK answer = head.query(h, {.k = 3});
  EXPECT_EQ(answer.ids, expected.ids);
  EXPECT_EQ(answer.logits, expected.logits);
  EXPECT_NEAR(answer.log_z, expected.log_z, 1e-5);
  EXPECT_EQ(answer.normalizer, Normalizer::candidates);
}

TEST(Shortlist, AnswersFromTheMostFrequentTokens) {
  const auto head =
      Shortlist::build(random_layer(kVocab, kDim, 1), {.top_frequent = 4, .counts = rising_counts()});
  EXPECT_EQ(list_of(*head), (std::vector<TokenId>{99, 98, 97, 96}));
  for (unsigned i = 0; i < 10; ++i) expect_best_of({99, 98, 97, 96}, *head, random_vector(kDim, 10 + i));
}

TEST(Shortlist, TakesAllThatSentencesAreAlignedWith) {
  const auto frequent =
      Shortlist::build(random_layer(kVocab, kDim, 1), {.top_frequent = 2, .counts = rising_counts()});
  const std::vector<TokenId> one = {0};
  EXPECT_EQ(list_of(*frequent->for_sentences(lists(), one)), (std::vector<TokenId>{99, 98, 7, 5}));
  const std::vector<TokenId> batch = {0, 1, 1, 2};
  const auto head = frequent->for_sentences(lists(), batch);
  EXPECT_EQ(list_of(*head), (std::vector<TokenId>{99, 98, 20, 7, 5}));
  expect_best_of(list_of(*head), *head, random_vector(kDim, 3));
  EXPECT_EQ(list_of(*frequent->for_sentences(lists(), {})), (std::vector<TokenId>{99, 98}));
}

TEST(Shortlist, TakesWhatEverySentenceHasAndWhatPhrasesHave) {
  const auto frequent =
      Shortlist::build(random_layer(kVocab, kDim, 1), {.top_frequent = 2, .counts = rising_counts()});
  std::vector<std::string> target;
  for (int i = 0; i < kVocab; ++i) target.push_back(std::string("t").append(std::to_string(i)));
  std::istringstream in("\tt3\ns0\tt5\ns0 s1\tt7\n");
  const AlignmentLists lists =
      AlignmentLists::read_vocabulary_map(in, "vmap.txt", std::vector<std::string>{"s0", "s1"}, target);
  const auto list = [&](const std::vector<TokenId>& source) {
    return list_of(*frequent->for_sentences(lists, source));
  };
  EXPECT_EQ(list({}), (std::vector<TokenId>{99, 98, 3}));
  EXPECT_EQ(list({1, 0}), (std::vector<TokenId>{99, 98, 5, 3}));
  EXPECT_EQ(list({0, 1}), (std::vector<TokenId>{99, 98, 7, 5, 3}));
}

TEST(Shortlist, EffortTakesTheMostFrequentOfTheList) {
  const auto head =
      Shortlist::build(random_layer(kVocab, kDim, 1), {.top_frequent = 50, .counts = rising_counts()});
  const Eigen::VectorXf h = random_vector(kDim, 3);
  EXPECT_EQ(head->query(h, {.k = 3, .effort = 7}).work.candidates, 7U);
  EXPECT_EQ(head->query(h, {.k = 3, .effort = 70}).work.candidates, 50U);
}

TEST(Shortlist, AListShorterThanKIsNotTheLastWord) {
  const auto head = Shortlist::build(random_layer(kVocab, kDim, 1), {.top_frequent = 2});
  const Eigen::VectorXf h = random_vector(kDim, 3);
  EXPECT_EQ(head->query(h, {.k = 3}).ids, Exact::make(head->layer())->query(h, {.k = 3}).ids);
}

TEST(Shortlist, CountsTheOrderOfAllTokens) {
  const auto head = Shortlist::build(random_layer(kVocab, kDim, 1), {.top_frequent = 4});
  EXPECT_EQ(head->index_bytes(), 4U * 4U * (kDim + 2U) + 4U * kVocab);
}

TEST(Shortlist, RefusesWhatItCannotUse) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  EXPECT_THROW(Shortlist::build(layer, {.top_frequent = 0}), Error);
  EXPECT_THROW(Shortlist::build(layer, {.counts = {1, 2, 3}}), Error);
  const auto head = Shortlist::build(layer);
  EXPECT_THROW(head->for_sentences(lists(), std::vector<TokenId>{3}), Error);
  EXPECT_THROW(head->for_sentences(lists(), std::vector<TokenId>{-1}), Error);
  EXPECT_THROW(head->for_sentences(AlignmentLists(), std::vector<TokenId>{0}), Error);
  EXPECT_THROW(Shortlist::build(random_layer(50, kDim, 1))->for_sentences(lists(), std::vector<TokenId>{0}),
               Error);
}

}  // namespace
}  // namespace topksoftmax
