// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/subset.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace topksoftmax
