// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/self_draft.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "decoding/expected_distribution.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/statistics.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"

namespace topksoftmax {
namespace {

constexpr Eigen::Index kVocab = 6;

/// A model whose context depends on the last token alone.
struct Model {
  SoftmaxLayer layer = testing::random_layer(kVocab, 4, 21);
  RowMajorMatrix contexts = testing::random_matrix(kVocab + 1, 4, 22, 1.5F);

  Eigen::VectorXf after(std::span<const TokenId> tokens) const {
    return contexts.row(tokens.empty() ? kVocab : tokens.back());
  }
  ContextModel callable() const {
    return [this](std::span<const TokenId> tokens, float* h) {
      Eigen::Map<Eigen::VectorXf>(h, 4) = after(tokens);
    };
  }
};

TEST(SelfDraft, WritesAsTheFullSoftmaxDoes) {
  const Model model;
  const auto head = Shortlist::build(model.layer, {.top_frequent = 3});
  for (const SamplingOptions& sampling :
       {SamplingOptions{}, SamplingOptions{.temperature = 0.7}, SamplingOptions{.top_p = 0.8},
        SamplingOptions{.temperature = 1.4, .top_k = 4, .min_p = 0.05}}) {
    const auto next = [&](std::span<const TokenId> text) {
      return testing::expected_distribution(testing::Reference(model.layer, model.after(text)).logits,
                                            sampling);
    };
    const std::vector<double> of_first = next({});
    std::vector<double> expected;
    for (TokenId first = 0; first < kVocab; ++first) {
      const TokenId text[] = {first};
      for (const double of_second : next(text)) {
        expected.push_back(of_first[static_cast<std::size_t>(first)] * of_second);
      }
    }
    std::vector<std::size_t> counts(expected.size());
    RandomStream random(4);
    for (int i = 0; i < 40000; ++i) {
      std::vector<TokenId> text;
      self_draft(text, 2, *head, model.callable(), random,
                 {.sampling = sampling, .speculative = {.drafts = 3}, .draft_tokens = 3});
      ++counts[static_cast<std::size_t>(text[0] * kVocab + text[1])];
    }
    EXPECT_LT(testing::chi_square_deviations(counts, expected), 4.0);
  }
}

TEST(SelfDraft, GreedyIsTheExactGreedyText) {
  const Model model;
  const auto head = Shortlist::build(model.layer, {.top_frequent = 3});
  const Exact exact(model.layer);
  std::vector<TokenId> expected;
  for (int i = 0; i < 30; ++i) expected.push_back(exact.query(model.after(expected)).ids[0]);
  std::vector<TokenId> text;
  RandomStream random(4);
  self_draft(text, 30, *head, model.callable(), random,
             {.sampling = {.temperature = 0.0}, .draft_tokens = 3});
  EXPECT_EQ(text, expected);
}

TEST(SelfDraft, MaskedTokensAreNeverWritten) {
  const Model model;
  const auto head = Shortlist::build(model.layer, {.top_frequent = 3});
  TokenMask mask(kVocab);
  mask.allow(1);
  mask.allow(4);
  std::vector<TokenId> text;
  RandomStream random(4);
  self_draft(text, 200, *head, model.callable(), random, {.query = {.allowed = mask}});
  EXPECT_EQ(text.size(), 200U);
  for (const TokenId token : text) EXPECT_TRUE(token == 1 || token == 4);
}

TEST(SelfDraft, RefusesUnusableOptions) {
  const Model model;
  const Exact exact(model.layer);
  std::vector<TokenId> text;
  RandomStream random(4);
  EXPECT_THROW(self_draft(text, 5, exact, model.callable(), random, {.sampling = {.temperature = -1.0}}),
               std::invalid_argument);
  EXPECT_THROW(self_draft(text, 5, exact, model.callable(), random, {.speculative = {.drafts = 0}}),
               std::invalid_argument);
  EXPECT_THROW(self_draft(text, 5, exact, model.callable(), random, {.draft_tokens = 0}),
               std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
