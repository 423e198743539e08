// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/subset.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "conformance/backends.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::Reference;

constexpr Eigen::Index kVocab = 500;
constexpr Eigen::Index kDim = 24;

TEST(Subset, HasTheSoftmaxOfItsTokens) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const std::vector<TokenId> ids = {17, 499, 0, 3};
  TokenMask mask = TokenMask::all(kVocab);
  mask.forbid(499);
  const Workspace workspace;
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto head = backend.make(layer, contexts);
    for (const bool masked : {false, true}) {
      const QueryOptions options = {.allowed = masked ? AllowedTokens(mask) : AllowedTokens()};
      const Eigen::VectorXf h = contexts.row(5);
      const Reference reference(layer, h);
      double sum = 0.0;
      for (const TokenId id : ids) {
        if (!masked || id != 499) sum += std::exp(reference.logits[static_cast<std::size_t>(id)]);
      }
      std::vector<float> log_probs(ids.size());
      const double log_z = log_softmax_over(*head, {h.data(), kDim}, ids, options, workspace, log_probs);
      EXPECT_NEAR(log_z, std::log(sum), 1e-5) << backend.name;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const double expected = reference.logits[static_cast<std::size_t>(ids[i])] - std::log(sum);
        if (masked && ids[i] == 499) {
          EXPECT_EQ(log_probs[i], -std::numeric_limits<float>::infinity());
        } else {
          EXPECT_NEAR(log_probs[i], expected, 1e-5);
        }
      }
    }
  }
}

TEST(Subset, MayBeEmptyOrForbidden) {
  const Fused head(random_layer(kVocab, kDim, 3));
  const std::vector<float> h(kDim, 0.1F);
  const double nothing = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(log_softmax_over(head, h, {}, {}, Workspace(), {}), nothing);
  const TokenMask none(kVocab);
  const std::vector<TokenId> ids = {4, 5};
  std::vector<float> log_probs(2);
  EXPECT_EQ(log_softmax_over(head, h, ids, {.allowed = none}, Workspace(), log_probs), nothing);
  EXPECT_EQ(log_probs[0], -std::numeric_limits<float>::infinity());
  EXPECT_THROW(log_softmax_over(head, h, ids, {}, Workspace(), std::span(log_probs).first(1)),
               std::invalid_argument);
}

TEST(Subset, HasFiniteLogProbsOfWhatIsAllowed) {
  const Fused head(random_layer(kVocab, kDim, 3));
  const std::vector<float> h(kDim, 0.1F);
  const TokenBias bias[] = {{4, 3e38F}, {5, -3e38F}};
  const std::vector<TokenId> ids = {4, 5};
  std::vector<float> log_probs(2);
  log_softmax_over(head, h, ids, {.logit_bias = bias}, Workspace(), log_probs);
  EXPECT_EQ(log_probs[0], 0.0F);
  EXPECT_EQ(log_probs[1], std::numeric_limits<float>::lowest());
}

TEST(Subset, HasItsLogZAsAMaskToo) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const Fused head(layer);
  TokenMask range(kVocab);
  std::vector<TokenId> ids;
  for (TokenId id = 100; id < 400; ++id) {
    range.allow(id);
    ids.push_back(id);
  }
  const Eigen::VectorXf h = contexts.row(0);
  std::vector<float> log_probs(ids.size());
  const double log_z = log_softmax_over(head, {h.data(), kDim}, ids, {}, Workspace(), log_probs);
  EXPECT_NEAR(head.query(h, {.k = 1, .allowed = range}).log_z, log_z, 1e-5);
}

// Whisper's rule: a timestamp is next where all of them together are more probable than any word.
TEST(Subset, AsAMaskTellsWhetherARangeOutweighsTheBestOther) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const TokenId first = kVocab - 150;
  TokenMask words(kVocab);
  TokenMask stamps(kVocab);
  for (TokenId id = 0; id < static_cast<TokenId>(kVocab); ++id) (id < first ? words : stamps).allow(id);
  const auto head = Certified::build(layer, contexts);
  Workspace workspace;
  TopK word;
  TopK stamp;
  std::size_t proven = 0;
  std::size_t outweigh = 0;
  for (Eigen::Index q = 0; q < 100; ++q) {
    const Eigen::VectorXf h = contexts.row(q);
    const testing::Reference reference(layer, h);
    head->query({h.data(), kDim}, {.k = 1, .allowed = words, .probabilities = false}, workspace, word);
    head->query({h.data(), kDim}, {.k = 1, .allowed = stamps}, workspace, stamp);
    double sum = 0.0;
    for (std::size_t id = first; id < kVocab; ++id) sum += std::exp(reference.logits[id]);
    const double best = *std::max_element(reference.logits.begin(), reference.logits.begin() + first);
    EXPECT_LE(stamp.log_z_low, std::log(sum) + 1e-5);
    EXPECT_GE(stamp.log_z_high, std::log(sum) - 1e-5);
    EXPECT_NEAR(word.logits[0], best, 1e-4);
    outweigh += std::log(sum) > best ? 1U : 0U;
    proven += stamp.log_z_low > best || stamp.log_z_high < best ? 1U : 0U;
  }
  EXPECT_GT(proven, 50U);
  EXPECT_GT(outweigh, 10U);
  EXPECT_LT(outweigh, 90U);
}

}  // namespace
}  // namespace topksoftmax
