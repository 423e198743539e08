// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/low_rank_log_prob.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "conformance/backends.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"

namespace topksoftmax {
namespace {

using testing::Reference;

TEST(LowRankLogProb, IsExactAtFullRank) {
  const SoftmaxLayer layer = testing::random_layer(300, 16, 4);
  const RowMajorMatrix contexts = testing::clustered_contexts(300, 16, 4, 2);
  Workspace workspace;
  for (const testing::Backend& backend : testing::all_backends()) {
    const std::shared_ptr<const TopKSoftmax> head = backend.make(layer, contexts);
    const Eigen::VectorXf h = contexts.row(5);
    if (!head->candidates(h.data(), 16, {}, workspace)) {
      EXPECT_THROW(LowRankLogProb::build(head, 4), Error) << backend.name;
      continue;
    }
    const LowRankLogProb log_prob = LowRankLogProb::build(head, 16);
    const Reference reference(layer, h);
    for (const TokenId token : {0, 17, 299}) {
      EXPECT_NEAR(log_prob(h.data(), 16, token, workspace),
                  reference.logits[static_cast<std::size_t>(token)] - reference.log_z, 1e-4)
          << backend.name;
    }
  }
}

TEST(LowRankLogProb, TakesExactLogitsOfTheCandidates) {
  const SoftmaxLayer layer = testing::random_layer(300, 16, 4);
  const std::shared_ptr<const TopKSoftmax> head = Shortlist::build(layer, {.top_frequent = 40});
  const LowRankLogProb log_prob = LowRankLogProb::build(head, 3);
  Workspace workspace;
  const Eigen::VectorXf h = testing::random_vector(16, 3);
  const std::vector<TokenId> ids = [&] {
    const auto found = head->candidates(h.data(), 16, {}, workspace);
    return std::vector<TokenId>(found->ids.begin(), found->ids.end());
  }();
  ASSERT_EQ(ids.size(), 40U);
  // Log-probabilities of two candidates differ by their exact logits, whatever the normaliser.
  const Reference reference(layer, h);
  const double a = log_prob(h.data(), 16, ids[0], workspace);
  const double b = log_prob(h.data(), 16, ids[1], workspace);
  EXPECT_NEAR(
      a - b,
      reference.logits[static_cast<std::size_t>(ids[0])] - reference.logits[static_cast<std::size_t>(ids[1])],
      1e-4);
  double sum = 0.0;
  for (TokenId token = 0; token < 300; ++token) sum += std::exp(log_prob(h.data(), 16, token, workspace));
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

TEST(LowRankLogProb, RefusesUnusableArguments) {
  const SoftmaxLayer layer = testing::random_layer(30, 4, 4);
  const std::shared_ptr<const TopKSoftmax> head = Shortlist::build(layer);
  EXPECT_THROW(LowRankLogProb::build(nullptr, 1), Error);
  EXPECT_THROW(LowRankLogProb::build(head, 0), Error);
  EXPECT_THROW(LowRankLogProb::build(head, 5), Error);
  const LowRankLogProb log_prob = LowRankLogProb::build(head, 2);
  const Eigen::VectorXf h = testing::random_vector(4, 1);
  Workspace workspace;
  EXPECT_THROW(log_prob(h.data(), 3, 0, workspace), std::invalid_argument);
  EXPECT_THROW(log_prob(h.data(), 4, 30, workspace), std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
