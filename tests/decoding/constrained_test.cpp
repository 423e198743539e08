// SPDX-License-Identifier: Apache-2.0
//
// Constrained decoding: a mask of allowed tokens that changes at every step, on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "conformance/backends.hpp"
#include "support/layers.hpp"
#include "topksoftmax/decoding/kept_logits.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/exact.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kVocab = 2500;

/// The mask of a step: `allowed` tokens, others at every step.
TokenMask mask_of(std::size_t allowed, std::size_t step) {
  TokenMask mask(kVocab);
  for (std::size_t n = 0; n < allowed; ++n) {
    mask.allow(static_cast<TokenId>((n * 1201 + step * 17) % kVocab));  // 1201 and 2500 have no common factor
  }
  return mask;
}

TEST(ConstrainedDecoding, EveryBackendFollowsAMaskThatChangesAtEveryStep) {
  const SoftmaxLayer layer = testing::random_layer(kVocab, 16, 5);
  const RowMajorMatrix contexts = testing::clustered_contexts(300, 16, 6, 7);
  const Exact exact(layer);
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto head = backend.make(layer, contexts);
    Workspace workspace;
    TopK answer;
    for (const std::size_t allowed : {std::size_t{1}, std::size_t{10}, std::size_t{1000}, kVocab - 1}) {
      for (std::size_t step = 0; step < 12; ++step) {
        const TokenMask mask = mask_of(allowed, step);
        const QueryOptions options = {.k = 3, .allowed = mask};
        const Eigen::VectorXf h = contexts.row(static_cast<Eigen::Index>(step));
        head->query(h, options, workspace, answer);
        ASSERT_EQ(answer.size(), std::min<std::size_t>(3, allowed)) << backend.name;
        for (const TokenId id : answer.ids) EXPECT_TRUE(mask.allows(id)) << backend.name;
        if (allowed <= 10) {
          // Just these are scored, and nothing else is read.
          EXPECT_TRUE(answer.certified) << backend.name;
          EXPECT_EQ(answer.work.candidates, allowed) << backend.name;
          EXPECT_EQ(answer.work.bytes_read, layer.rows().bytes(allowed)) << backend.name;
        }
        if (answer.certified) {
          const TopK truth = exact.query(h, options);
          EXPECT_EQ(answer.ids, truth.ids) << backend.name;
          EXPECT_EQ(answer.logits, truth.logits) << backend.name;
        }
      }
    }
  }
}

TEST(ConstrainedDecoding, EveryBackendDrawsFromAMaskThatChangesAtEveryStep) {
  const SoftmaxLayer layer = testing::random_layer(kVocab, 16, 5);
  const RowMajorMatrix contexts = testing::clustered_contexts(300, 16, 6, 7);
  const TokenBias biases[] = {{17, 2.0F}, {1218, -1.0F}};
  const SamplingOptions kinds[] = {
      {}, {.temperature = 0.7, .top_p = 0.8}, {.top_k = 5}, {.min_p = 0.1}, {.typical_p = 0.7}};
  for (const testing::Backend& backend : testing::all_backends()) {
    SCOPED_TRACE(backend.name);
    const auto head = backend.make(layer, contexts);
    Workspace workspace;
    for (const std::size_t allowed : {std::size_t{1}, std::size_t{10}, kVocab / 32, kVocab / 8, kVocab / 2}) {
      for (const SamplingOptions& options : kinds) {
        Sampler sampler(options);
        RandomStream random(allowed);
        RandomStream same(allowed);
        for (std::size_t step = 0; step < 6; ++step) {
          const TokenMask mask = mask_of(allowed, step);
          const QueryOptions query = {.allowed = mask, .logit_bias = biases};
          const Eigen::VectorXf h = contexts.row(static_cast<Eigen::Index>(step));
          const SampledToken token = sampler.draw(*head, h, random, query);
          const detail::KeptLogits kept(head->logits(h, query, workspace), options, false);
          const SampledToken expected = kept.draw(TokenGumbels(same.bits()));
          ASSERT_EQ(token.id, expected.id) << allowed;
          ASSERT_EQ(token.logit, expected.logit);
          ASSERT_LE(token.log_prob_low, expected.log_prob + 1e-6);
          ASSERT_GE(token.log_prob_high, expected.log_prob - 1e-6);
        }
        // Where these are all that is read, their rows are.
        const bool from_rows = allowed <= kVocab / 32 || (!head->certifies() && allowed <= kVocab / 8);
        if (from_rows) {
          EXPECT_EQ(sampler.full_scans(), 0U) << allowed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace topksoftmax
