// SPDX-License-Identifier: Apache-2.0
//
// Constrained decoding: a mask of allowed tokens that changes at every step, on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "conformance/backends.hpp"
#include "support/layers.hpp"
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

}  // namespace
}  // namespace topksoftmax
