// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/baselines/greedy_mips.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/layers.hpp"
#include "support/screened.hpp"
#include "topksoftmax/baselines/build_greedy_mips.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::screened;

constexpr Eigen::Index kVocab = 300;
constexpr Eigen::Index kDim = 12;

/// The allowed tokens by their largest single product, the bias being one.
std::vector<TokenId> by_largest_product(const SoftmaxLayer& layer, const Eigen::VectorXf& h,
                                        TokenId only_every = 1) {
  const RowMajorMatrix W = layer.weights();
  const Eigen::VectorXf b = layer.biases();
  std::vector<std::pair<float, TokenId>> largest;
  for (Eigen::Index token = 0; token < W.rows(); token += only_every) {
    float most = (W.row(token).transpose().array() * h.array()).maxCoeff();
    if (layer.has_bias()) most = std::max(most, b[token]);
    largest.emplace_back(-most, static_cast<TokenId>(token));
  }
  std::sort(largest.begin(), largest.end());
  std::vector<TokenId> ids;
  for (const auto& [product, id] : largest) ids.push_back(id);
  return ids;
}

std::vector<TokenId> screen(const GreedyMips& head, const Eigen::VectorXf& h,
                            const AllowedTokens& allowed = {}) {
  Query query;
  query.edits.allowed = allowed;
  return screened(head, h, query);
}

TEST(GreedyMips, CandidatesComeInTheOrderOfTheirLargestProducts) {
  for (const bool biased : {true, false}) {
    const SoftmaxLayer layer =
        biased ? random_layer(kVocab, kDim, 1) : SoftmaxLayer::own(random_matrix(kVocab, kDim, 1, 0.3F));
    for (const std::size_t budget : {1U, 10U, 100U, 299U}) {
      const auto head = GreedyMips::build(layer, {.budget = budget});
      for (unsigned i = 0; i < 10; ++i) {
        const Eigen::VectorXf h = random_vector(kDim, 20 + i);
        std::vector<TokenId> expected = by_largest_product(layer, h);
        expected.resize(budget);
        EXPECT_EQ(screen(*head, h), expected);
      }
    }
  }
}

TEST(GreedyMips, PassesOverForbiddenTokens) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const auto head = GreedyMips::build(layer, {.budget = 60});
  std::vector<std::uint64_t> allowed(5, 0);
  for (std::size_t token = 0; token < kVocab; token += 3)
    allowed[token / 64] |= std::uint64_t{1} << token % 64;
  const Eigen::VectorXf h = random_vector(kDim, 40);
  std::vector<TokenId> expected = by_largest_product(layer, h, 3);
  expected.resize(60);
  EXPECT_EQ(screen(*head, h, allowed), expected);
}

TEST(GreedyMips, FindsAllThatIsAllowedBeforeItGivesUp) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const auto head = GreedyMips::build(layer, {.budget = 200});
  std::vector<std::uint64_t> allowed(5, 0);
  for (std::size_t token = 0; token < kVocab; token += 3)
    allowed[token / 64] |= std::uint64_t{1} << token % 64;
  EXPECT_EQ(screen(*head, random_vector(kDim, 40), allowed).size(), 100U);
}

TEST(GreedyMips, RefusesAnEmptyBudgetAndOtherContexts) {
  EXPECT_THROW(GreedyMips::build(random_layer(10, 3, 1), {.budget = 0}), Error);
  EXPECT_THROW(GreedyMips::build(random_layer(10, 3, 1), random_matrix(5, 4, 1)), Error);
}

}  // namespace
}  // namespace topksoftmax
