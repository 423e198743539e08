// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/tokens_reaching.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/spans.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::Reference;
using testing::span_of;

constexpr std::size_t kVocab = 2003;
constexpr std::size_t kDim = 48;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The n-th best logit.
double best_logit(const Reference& reference, std::size_t n) {
  std::vector<double> logits = reference.logits;
  std::nth_element(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(n), logits.end(),
                   std::greater<>());
  return logits[n];
}

TEST(TokensReaching, AreAllThatDoWithinTheirBounds) {
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  for (const LogitTransform& transform :
       {LogitTransform{}, LogitTransform{.scale = 2.0F, .soft_cap = 9.0F}}) {
    const SoftmaxLayer layer = random_layer(kVocab, kDim, 3).with(transform);
    for (const CertifiedOptions& options :
         {CertifiedOptions{.width = 16, .boxes = BoundBoxes::never},
          CertifiedOptions{.width = 16, .boxes = BoundBoxes::always},
          CertifiedOptions{.prefix = 8, .int4_width = 32, .boxes = BoundBoxes::always}}) {
      const auto head = Certified::build(layer, contexts, options);
      Workspace workspace;
      BoundedTokens tokens;
      std::size_t named = 0;
      for (Eigen::Index q = 0; q < 40; ++q) {
        const Eigen::VectorXf h = contexts.row(q);
        const Reference reference(layer, h);
        const auto least = static_cast<float>(best_logit(reference, 20));
        ASSERT_TRUE(head->tokens_reaching(span_of(h), least, {}, workspace, tokens));
        ASSERT_EQ(tokens.ids.size(), tokens.most.size());
        std::vector<float> most(kVocab, -kInfinity);
        for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
          const auto id = static_cast<std::size_t>(tokens.ids[i]);
          ASSERT_EQ(most[id], -kInfinity) << "token " << id << " comes twice";
          most[id] = tokens.most[i];
        }
        for (std::size_t id = 0; id < kVocab; ++id) {
          const bool is_named = most[id] > -kInfinity;
          if (is_named) {
            ASSERT_GE(static_cast<double>(most[id]), reference.logits[id] - 1e-4);
          } else {
            ASSERT_LT(reference.logits[id], static_cast<double>(least) + 1e-4) << "token " << id;
          }
        }
        named += tokens.ids.size();
      }
      EXPECT_LT(named, 40 * kVocab / 2);
    }
  }
}

TEST(TokensReaching, LikelyOnesAreMostOfTheBest) {
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto head = Certified::build(layer, contexts, {.boxes = boxes});
    Workspace workspace;
    std::vector<ScoredToken> tokens;
    std::size_t found = 0;
    for (Eigen::Index q = 0; q < 40; ++q) {
      const Eigen::VectorXf h = contexts.row(q);
      const Reference reference(layer, h);
      ASSERT_TRUE(head->likely_tokens(span_of(h), 12, {}, workspace, tokens));
      EXPECT_GE(tokens.size(), 12U);
      EXPECT_LE(tokens.size(), 48U);
      const double eighth = best_logit(reference, 7);
      std::set<TokenId> ids;
      for (const ScoredToken& token : tokens) {
        EXPECT_TRUE(ids.insert(token.id).second);
        ASSERT_NEAR(token.logit, reference.logits[static_cast<std::size_t>(token.id)], 1e-4);
        found += static_cast<double>(token.logit) >= eighth - 1e-4 ? 1U : 0U;
      }
    }
    EXPECT_GT(found, 40U * 6U);
  }
}

TEST(TokensReaching, MasksAndBiasesAct) {
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < static_cast<TokenId>(kVocab); id += 2) mask.allow(id);
  const TokenBias bias[] = {{4, -50.0F}, {9, 1.0F}};
  const QueryOptions query = {.allowed = mask, .logit_bias = bias};
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto head = Certified::build(layer, contexts, {.boxes = boxes});
    Workspace workspace;
    BoundedTokens tokens;
    std::vector<ScoredToken> likely;
    for (Eigen::Index q = 0; q < 20; ++q) {
      const Eigen::VectorXf h = contexts.row(q);
      const Reference reference(layer, h);
      const auto least = static_cast<float>(best_logit(reference, 40));
      ASSERT_TRUE(head->tokens_reaching(span_of(h), least, query, workspace, tokens));
      std::vector<float> most(kVocab, -kInfinity);
      for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
        most[static_cast<std::size_t>(tokens.ids[i])] = tokens.most[i];
      }
      for (std::size_t id = 0; id < kVocab; ++id) {
        const bool is_biased = id == 4 || id == 9;
        if (is_biased) {
          EXPECT_EQ(most[id], kInfinity);
        } else if (id % 2 == 1) {
          EXPECT_EQ(most[id], -kInfinity) << "a forbidden token";
        } else if (reference.logits[id] >= static_cast<double>(least) + 1e-4) {
          EXPECT_GE(static_cast<double>(most[id]), reference.logits[id] - 1e-4);
        }
      }
      ASSERT_TRUE(head->likely_tokens(span_of(h), 12, query, workspace, likely));
      for (const ScoredToken& token : likely) EXPECT_TRUE(token.id % 2 == 0 && token.id != 4);
    }
  }
}

TEST(TokensReaching, NothingIsRuledOutByALogitThatAnyProductMayHave) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3).with({.soft_cap = 30.0F});
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const auto head = Certified::build(layer, contexts);
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < static_cast<TokenId>(kVocab); ++id) mask.allow(id);
  mask.forbid(7);
  Workspace workspace;
  BoundedTokens tokens;
  const Eigen::VectorXf h = contexts.row(0);
  EXPECT_TRUE(head->tokens_reaching(span_of(h), -29.0F, {.allowed = mask}, workspace, tokens));
  EXPECT_EQ(std::count(tokens.ids.begin(), tokens.ids.end(), 7), 0);
  for (const float least : {-30.0F, -31.0F, kInfinity}) {
    EXPECT_FALSE(head->tokens_reaching(span_of(h), least, {.allowed = mask}, workspace, tokens)) << least;
  }
}

TEST(TokensReaching, IdsAreTheModels) {
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const auto is_padding = [](TokenId row) { return row % 10 == 9; };
  std::vector<TokenId> token_of_row;
  token_of_row.reserve(kVocab);
  for (TokenId row = 0; row < static_cast<TokenId>(kVocab); ++row) {
    token_of_row.push_back(is_padding(row) ? -1 : 2 * row);
  }
  const std::shared_ptr<const TopKSoftmax> over_rows = Certified::build(layer, contexts);
  const auto head = MappedVocabulary::wrap(over_rows, token_of_row, 2 * kVocab);
  const Eigen::VectorXf h = contexts.row(0);
  const Reference reference(layer, h);
  const auto least = static_cast<float>(best_logit(reference, 50));
  Workspace workspace;
  BoundedTokens tokens;
  BoundedTokens rows;
  ASSERT_TRUE(head->tokens_reaching(span_of(h), least, {}, workspace, tokens));
  ASSERT_TRUE(over_rows->tokens_reaching(span_of(h), least, {}, workspace, rows));
  BoundedTokens expected;
  for (std::size_t i = 0; i < rows.ids.size(); ++i) {
    if (is_padding(rows.ids[i])) continue;
    expected.ids.push_back(2 * rows.ids[i]);
    expected.most.push_back(rows.most[i]);
  }
  EXPECT_LT(expected.ids.size(), rows.ids.size());
  EXPECT_EQ(tokens.ids, expected.ids);
  EXPECT_EQ(tokens.most, expected.most);
  std::vector<ScoredToken> likely;
  ASSERT_TRUE(head->likely_tokens(span_of(h), 12, {}, workspace, likely));
  for (const ScoredToken& token : likely) {
    ASSERT_FALSE(is_padding(token.id / 2));
    ASSERT_NEAR(token.logit, reference.logits[static_cast<std::size_t>(token.id / 2)], 1e-4);
  }
}

TEST(TokensReaching, NothingIsSaidWithoutProvenBounds) {
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const auto certified = Certified::build(layer, contexts);
  const auto dithered = Certified::build(
      layer, contexts,
      {.prefix = 8, .int4_width = 32, .boxes = BoundBoxes::never, .failure_probability = 1e-9});
  const Fused fused(layer);
  const Eigen::VectorXf h = contexts.row(0);
  const Eigen::VectorXf none = Eigen::VectorXf::Zero(static_cast<Eigen::Index>(kDim));
  Workspace workspace;
  BoundedTokens tokens;
  std::vector<ScoredToken> likely;
  for (const TopKSoftmax* head :
       {static_cast<const TopKSoftmax*>(dithered.get()), static_cast<const TopKSoftmax*>(&fused)}) {
    EXPECT_FALSE(head->tokens_reaching(span_of(h), 1.0F, {}, workspace, tokens));
    EXPECT_FALSE(head->likely_tokens(span_of(h), 5, {}, workspace, likely));
  }
  EXPECT_FALSE(certified->tokens_reaching(span_of(none), 1.0F, {}, workspace, tokens));
  EXPECT_FALSE(certified->likely_tokens(span_of(none), 5, {}, workspace, likely));
  EXPECT_FALSE(certified->tokens_reaching(span_of(h), -kInfinity, {}, workspace, tokens));
  const Eigen::VectorXf longer = Eigen::VectorXf::Ones(static_cast<Eigen::Index>(kDim + 1));
  EXPECT_THROW(certified->tokens_reaching(span_of(longer), 1.0F, {}, workspace, tokens),
               std::invalid_argument);
  EXPECT_THROW(certified->likely_tokens(span_of(longer), 5, {}, workspace, likely), std::invalid_argument);
}

TEST(TokensReaching, CertifySaysWhatCertifiedDoes) {
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const auto certified = Certified::build(layer, contexts);
  const auto certify = Certify::wrap(std::make_shared<Fused>(layer), contexts);
  const Eigen::VectorXf h = contexts.row(3);
  Workspace workspace;
  BoundedTokens expected;
  BoundedTokens tokens;
  ASSERT_TRUE(certified->tokens_reaching(span_of(h), 1.0F, {}, workspace, expected));
  ASSERT_TRUE(certify->tokens_reaching(span_of(h), 1.0F, {}, workspace, tokens));
  EXPECT_EQ(tokens.ids, expected.ids);
  EXPECT_EQ(tokens.most, expected.most);
  std::vector<ScoredToken> likely;
  EXPECT_TRUE(certify->likely_tokens(span_of(h), 5, {}, workspace, likely));
}

}  // namespace
}  // namespace topksoftmax
