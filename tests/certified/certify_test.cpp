// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/certify.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/by_bounds.hpp"
#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/l2s/l2s.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::random_matrix;

constexpr Eigen::Index kVocab = 900;
constexpr Eigen::Index kDim = 20;

class CertifyTest : public ::testing::Test {
 protected:
  void expect_exact(const TopKSoftmax& head, const QueryOptions& options) {
    for (Eigen::Index i = 0; i < H_.rows(); ++i) {
      const TopK answer = head.query(H_.row(i), options);
      // Where Exact is wrapped, or all tokens are wanted, all rows are scored anyway.
      if (head.name() != "certify:exact" && options.k < layer_.vocab())
        by_bounds_.count(answer, options.allowed.count(layer_.vocab()));
      const TopK expected = exact_->query(H_.row(i), options);
      ASSERT_EQ(answer.ids, expected.ids);
      ASSERT_EQ(answer.logits, expected.logits);
      ASSERT_TRUE(answer.certified);
    }
  }

  SoftmaxLayer layer_ = random_layer(kVocab, kDim, 1);
  RowMajorMatrix H_ = clustered_contexts(120, kDim, 8, 2);
  std::unique_ptr<Exact> exact_ = Exact::make(layer_);
  testing::ByBounds by_bounds_;
};

TEST_F(CertifyTest, AnswersExactlyWhateverIsWrapped) {
  L2SOptions small;
  small.clusters = 4;
  small.budget = 8;
  small.rounds = 1;
  const std::vector<std::shared_ptr<const TopKSoftmax>> backends = {
      L2S::train(layer_, H_, small), Shortlist::build(layer_, {.top_frequent = 6}), Exact::make(layer_),
      Certify::wrap(Shortlist::build(layer_, {.top_frequent = 60}), H_)};
  std::vector<TokenBias> bias;
  for (TokenId id = 0; id < kVocab; id += 50) bias.push_back({id, id % 100 == 0 ? 4.0F : -4.0F});
  TokenMask mask(layer_.vocab());
  for (TokenId id = 0; id < kVocab; id += 2) mask.allow(id);
  for (const auto& backend : backends) {
    const auto head = Certify::wrap(backend, H_);
    for (const std::size_t k : {1U, 5U, 40U}) {
      expect_exact(*head, {.k = k});
      expect_exact(*head, {.k = k, .allowed = mask});
      expect_exact(*head, {.k = k, .logit_bias = bias});
      expect_exact(*head, {.k = k, .allowed = mask, .logit_bias = bias, .probabilities = false});
    }
    expect_exact(*head, {.k = kVocab});
  }
  by_bounds_.expect_mostly_by_bounds();
}

TEST_F(CertifyTest, SaysWhatItHadToRepair) {
  const std::shared_ptr<const TopKSoftmax> list = Shortlist::build(layer_, {.top_frequent = 60});
  const auto head = Certify::wrap(list, H_);
  std::size_t repaired = 0;
  for (Eigen::Index i = 0; i < H_.rows(); ++i) {
    const TopK answer = head->query(H_.row(i), {.k = 3});
    EXPECT_EQ(answer.work.repaired, list->query(H_.row(i), {.k = 3}).ids != answer.ids);
    repaired += answer.work.repaired ? 1U : 0U;
  }
  EXPECT_GT(repaired, 0U);
  const auto right = Certify::wrap(Exact::make(layer_), H_);
  EXPECT_FALSE(right->query(H_.row(0), {.k = 3}).work.repaired);
}

TEST_F(CertifyTest, FindsWhatTheBackendIsTooShortOf) {
  const std::shared_ptr<const TopKSoftmax> list = Shortlist::build(layer_, {.top_frequent = 2});
  const auto head = Certify::wrap(list, H_, {.width = kDim});
  EXPECT_TRUE(list->query(H_.row(0), {.k = 5}).work.fell_back);
  for (const bool probabilities : {false, true}) {
    expect_exact(*head, {.k = 5, .probabilities = probabilities});
  }
  for (Eigen::Index i = 0; i < H_.rows(); ++i) {
    const QueryWork work = head->query(H_.row(i), {.k = 5}).work;
    EXPECT_FALSE(work.fell_back);
    EXPECT_TRUE(work.repaired);
    EXPECT_LT(work.candidates, kVocab / 4U);
  }
}

TEST_F(CertifyTest, ManySurvivorsDoNotShakeIt) {
  // The best threshold there is, and bounds too weak to make much of it.
  const auto head = Certify::wrap(Exact::make(layer_), H_, {.prefix = 4, .width = 8});
  std::size_t most = 0;
  for (const std::size_t k : {1U, 5U, 20U}) {
    expect_exact(*head, {.k = k});
    for (Eigen::Index i = 0; i < H_.rows(); ++i) {
      most = std::max(most, head->query(H_.row(i), {.k = k}).work.candidates);
    }
  }
  EXPECT_GT(most, 200U);
}

TEST_F(CertifyTest, WorksWithoutContexts) {
  const auto head = Certify::wrap(Shortlist::build(layer_), RowMajorMatrix(0, kDim));
  EXPECT_EQ(head->name(), "certify:shortlist");
  expect_exact(*head, {.k = 5});
  by_bounds_.expect_mostly_by_bounds();
}

TEST_F(CertifyTest, RefusesWhatItCannotUse) {
  EXPECT_THROW(Certify::wrap(nullptr, H_), Error);
  EXPECT_THROW(Certify::wrap(Shortlist::build(layer_), random_matrix(5, kDim + 1, 1)), Error);
}

}  // namespace
}  // namespace topksoftmax
