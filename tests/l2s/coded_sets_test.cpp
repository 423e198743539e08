// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/coded_sets.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {
namespace {

using detail::CodedSets;
using testing::random_layer;
using testing::random_vector;

constexpr Eigen::Index kVocab = 1000;
constexpr Eigen::Index kDim = 40;

/// A short set, a long one, an empty one and a longer one.
CandidateSets some_sets() {
  std::vector<std::vector<TokenId>> sets;
  for (const auto& [size, step] : {std::pair{20, 3}, std::pair{150, 5}, std::pair{0, 1}, std::pair{333, 3}}) {
    std::vector<TokenId>& ids = sets.emplace_back();
    for (int i = 0; i < size; ++i) ids.push_back(static_cast<TokenId>(i * step));
  }
  return CandidateSets::copy(sets);
}

/// Narrows the candidates of a set.
Candidates narrowed(const SoftmaxLayer& layer, const CandidateSets& sets, std::size_t set, const Query& query,
                    Workspace& workspace) {
  const CodedSets codes(layer, sets);
  Candidates candidates;
  candidates.ids = sets[set];
  candidates.group = set;
  codes.narrow(query, layer, workspace, candidates);
  return candidates;
}

std::vector<float> logits_of(const SoftmaxLayer& layer, std::span<const TokenId> ids, const float* h) {
  std::vector<float> logits(ids.size());
  kernels::scan_gathered(layer.rows(), ids.data(), ids.size(), h, logits.data());
  return logits;
}

double log_sum(const std::vector<float>& logits) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum);
}

void expect_the_best_are_left(const SoftmaxLayer& layer) {
  const CandidateSets sets = some_sets();
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto dim = static_cast<Eigen::Index>(layer.dim());
    const Eigen::VectorXf h = random_vector(dim, 100 + seed, 3.0F);
    for (const std::size_t set : {1U, 3U}) {
      for (const std::size_t k : {1U, 5U, 30U}) {
        Workspace workspace;
        Query query;
        query.h = h.data();
        query.k = k;
        query.probabilities = true;
        const Candidates left = narrowed(layer, sets, set, query, workspace);
        EXPECT_GE(left.ids.size(), k);
        EXPECT_LT(left.ids.size(), sets[set].size() / 2);
        EXPECT_TRUE(std::is_sorted(left.ids.begin(), left.ids.end()));
        const std::vector<float> all = logits_of(layer, sets[set], h.data());
        std::vector<float> sorted = all;
        std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k - 1), sorted.end(),
                         std::greater<>());
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (all[i] < sorted[k - 1]) continue;
          EXPECT_TRUE(std::binary_search(left.ids.begin(), left.ids.end(), sets[set][i]));
        }
        const double inside = log_sum(logits_of(layer, left.ids, h.data()));
        EXPECT_NEAR(kernels::log_add_exp(inside, left.outside), log_sum(all), 3e-2);
      }
    }
  }
}

TEST(CodedSets, LeaveWhatMayBeAmongTheBestAndCountTheOthers) {
  expect_the_best_are_left(random_layer(kVocab, kDim, 1));
}

TEST(CodedSets, LeaveThemBehindASoftCap) {
  expect_the_best_are_left(random_layer(kVocab, kDim, 1).with({.scale = 1.5F, .soft_cap = 20.0F}));
}

TEST(CodedSets, LeaveShortSetsManyAskedForAndEditedQueriesAlone) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const CandidateSets sets = some_sets();
  const Eigen::VectorXf h = random_vector(kDim, 2);
  Workspace workspace;
  Query query;
  query.h = h.data();
  query.k = 5;
  EXPECT_EQ(narrowed(layer, sets, 0, query, workspace).ids.size(), 20U);
  EXPECT_LT(narrowed(layer, sets, 1, query, workspace).ids.size(), 75U);
  query.k = 38;
  EXPECT_EQ(narrowed(layer, sets, 1, query, workspace).ids.size(), 150U);
  query.k = 5;
  const TokenBias bias = {3, 1.0F};
  query.edits.bias = &bias;
  query.edits.bias_count = 1;
  EXPECT_EQ(narrowed(layer, sets, 1, query, workspace).ids.size(), 150U);
  query.edits = {};
  const Eigen::VectorXf nothing = Eigen::VectorXf::Zero(kDim);
  query.h = nothing.data();
  EXPECT_EQ(narrowed(layer, sets, 1, query, workspace).ids.size(), 150U);
}

// What was learned of the tokens outside may be no more than so much above the whole set.
TEST(CodedSets, CutTheMassOutsideByThatOfTheWholeSet) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const CandidateSets sets = some_sets();
  const CodedSets codes(layer, sets);
  const Eigen::VectorXf h = random_vector(kDim, 2);
  Workspace workspace;
  Query query;
  query.h = h.data();
  query.k = 5;
  query.probabilities = true;
  Candidates candidates;
  candidates.ids = sets[3];
  candidates.group = 3;
  candidates.normalizer = Normalizer::learned;
  candidates.outside = 1000.0;
  candidates.most_outside = 0.5;
  codes.narrow(query, layer, workspace, candidates);
  const double whole = log_sum(logits_of(layer, sets[3], h.data()));
  const double inside = log_sum(logits_of(layer, candidates.ids, h.data()));
  EXPECT_NEAR(kernels::log_add_exp(inside, candidates.outside), whole + std::log1p(std::exp(0.5)), 1e-2);
}

TEST(CodedSets, AreNotMadeWhereTheyTakeMoreThanTwiceTheLayer) {
  const SoftmaxLayer layer = random_layer(200, kDim, 1);
  std::vector<TokenId> all(200);
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<TokenId>> sets;
  for (int t = 0; t < 9; ++t) {
    sets.push_back(all);
    const std::size_t bytes = CodedSets(layer, CandidateSets::copy(sets)).bytes();
    EXPECT_LE(bytes, 2 * layer.rows().bytes(200));
    EXPECT_EQ(bytes > 0, t < 6) << t;
  }
}

}  // namespace
}  // namespace topksoftmax
