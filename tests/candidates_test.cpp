// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/candidates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/screened_softmax.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_vector;

/// Proposes what it is told to.
struct FixedScreener {
  Candidates candidates;

  Candidates screen(const Query&, Workspace&) const { return candidates; }
  std::string_view name() const { return "fixed"; }
  std::size_t index_bytes() const { return 0; }
};

class CandidatesTest : public ::testing::Test {
 protected:
  TopK answer(const Candidates& candidates, const QueryOptions& options) const {
    return ScreenedSoftmax<FixedScreener>(layer_, {candidates}).query(h_, options);
  }
  TopK truth(const QueryOptions& options) const { return Exact::make(layer_)->query(h_, options); }

  SoftmaxLayer layer_ = random_layer(500, 9, 1);
  Eigen::VectorXf h_ = random_vector(9, 2);
  std::vector<TokenId> ids_ = {400, 3, 77, 12, 499};
};

TEST_F(CandidatesTest, OnlyTheCandidatesCompete) {
  const TopK found = answer({.ids = ids_}, {.k = 5});
  double sum = 0.0;
  for (const float logit : found.logits) sum += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(found.log_z, std::log(sum), 1e-6);
  EXPECT_EQ(found.normalizer, Normalizer::candidates);
  EXPECT_FALSE(found.certified);
  EXPECT_EQ(found.work.candidates, 5U);
  EXPECT_FALSE(found.work.fell_back);
}

TEST_F(CandidatesTest, TooFewFallBackToTheWholeVocabulary) {
  for (const Candidates& few :
       {Candidates{.ids = ids_}, Candidates{}, Candidates{.ids = ids_, .everything = true}}) {
    const TopK found = answer(few, {.k = few.everything ? std::size_t{2} : std::size_t{6}});
    EXPECT_EQ(found.ids, truth({.k = found.size()}).ids);
    EXPECT_TRUE(found.certified);
    EXPECT_TRUE(found.work.fell_back);
  }
}

TEST_F(CandidatesTest, ForbiddenCandidatesDoNotCount) {
  TokenMask mask(500);
  for (TokenId id = 0; id < 400; ++id) mask.allow(id);
  EXPECT_FALSE(answer({.ids = ids_}, {.k = 3, .allowed = mask}).work.fell_back);
  const TopK found = answer({.ids = ids_}, {.k = 4, .allowed = mask});
  EXPECT_TRUE(found.work.fell_back);
  EXPECT_EQ(found.ids, truth({.k = 4, .allowed = mask}).ids);
}

TEST_F(CandidatesTest, BiasedTokensAlwaysCompete) {
  const std::vector<TokenBias> bias = {{3, 1.0F}, {200, 500.0F}};
  const TopK found = answer({.ids = ids_}, {.k = 5, .logit_bias = bias});
  EXPECT_EQ(found.ids[0], 200);
  EXPECT_EQ(found.work.candidates, 6U);
}

TEST_F(CandidatesTest, BiasedTokensDoNotStandForOthersThatWereNotProposed) {
  TokenMask mask(500);
  for (TokenId id = 100; id < 399; ++id) mask.allow(id);
  const std::vector<TokenBias> bias = {{150, -0.5F}};
  const QueryOptions options = {.k = 1, .allowed = mask, .logit_bias = bias};
  const TopK found = answer({.ids = ids_}, options);
  EXPECT_TRUE(found.work.fell_back);
  EXPECT_EQ(found.ids, truth(options).ids);
  EXPECT_TRUE(answer({.ids = ids_}, {.k = 6, .logit_bias = bias}).work.fell_back);
}

TEST_F(CandidatesTest, PackedRowsGiveTheSameAnswer) {
  const RowMajorMatrix W = layer_.weights();
  RowMajorMatrix copies(5, 9);
  Eigen::VectorXf biases(5);
  for (Eigen::Index i = 0; i < 5; ++i) {
    copies.row(i) = W.row(ids_[static_cast<std::size_t>(i)]);
    biases[i] = layer_.biases()[ids_[static_cast<std::size_t>(i)]];
  }
  const kernels::Rows packed = SoftmaxLayer::borrow(copies, biases).rows();
  const TopK gathered = answer({.ids = ids_}, {.k = 5});
  const TopK found = answer({.ids = ids_, .packed = &packed}, {.k = 5});
  EXPECT_EQ(found.ids, gathered.ids);
  EXPECT_EQ(found.logits, gathered.logits);
}

TEST_F(CandidatesTest, ContextsThatShareThemAreAnsweredAsEachAlone) {
  const RowMajorMatrix H = testing::random_matrix(37, 9, 7);
  TokenMask mask(500);
  for (TokenId id = 0; id < 450; ++id) mask.allow(id);
  const std::vector<TokenBias> bias = {{3, 1.0F}, {200, 500.0F}};
  for (const kernels::LogitEdits& edits : {kernels::LogitEdits{}, kernels::LogitEdits{mask, nullptr, 0},
                                           kernels::LogitEdits{mask, bias.data(), bias.size()}}) {
    for (const std::size_t k : {1U, 4U, 5U, 6U, 10U}) {  // from 5 on too few of them are allowed
      for (const std::size_t batch : {1U, 16U, 37U}) {
        Query query;
        query.h = H.data();
        query.k = k;
        query.edits = edits;
        query.fall_back = batch != 16;
        Workspace workspace;
        std::vector<TopK> together(batch);
        const Candidates shared = {.ids = ids_, .screened = 9, .bytes_read = 70};
        answer_batch_from_candidates(layer_, {query, 9, batch}, shared, workspace, together.data());
        for (std::size_t q = 0; q < batch; ++q, query.h += 9) {
          TopK alone;
          answer_from_candidates(layer_, query, shared, workspace, alone);
          EXPECT_EQ(together[q].ids, alone.ids);
          EXPECT_EQ(together[q].logits, alone.logits);
          EXPECT_EQ(together[q].log_z, alone.log_z);
          EXPECT_EQ(together[q].work.fell_back, alone.work.fell_back);
          EXPECT_EQ(together[q].work.bytes_read, alone.work.bytes_read);
          EXPECT_EQ(together[q].work.screened, 9U);
        }
      }
    }
  }
}

TEST_F(CandidatesTest, BoundsOfTheOutsideBecomeAnInterval) {
  const TopK inside = answer({.ids = ids_}, {.k = 5});
  const TopK found = answer({.ids = ids_,
                             .outside = inside.log_z + std::log(2.0),
                             .outside_low = inside.log_z,
                             .outside_high = inside.log_z + std::log(3.0),
                             .normalizer = Normalizer::interval},
                            {.k = 5});
  EXPECT_NEAR(found.log_z_low, inside.log_z + std::log(2.0), 1e-5);
  EXPECT_LT(found.log_z_low, inside.log_z + std::log(2.0));  // by what the sum inside may be wrong
  EXPECT_NEAR(found.log_z, inside.log_z + std::log(3.0), 1e-9);
  EXPECT_NEAR(found.log_z_high, inside.log_z + std::log(4.0), 1e-5);
  EXPECT_GT(found.log_z_high, inside.log_z + std::log(4.0));
  EXPECT_LE(found.log_prob_interval(0).first, found.log_prob(0));
  EXPECT_GE(found.log_prob_interval(0).second, found.log_prob(0));
}

TEST_F(CandidatesTest, ALearnedMassOutsideIsCounted) {
  const TopK inside = answer({.ids = ids_}, {.k = 5});
  const Candidates twice = {
      .ids = ids_, .outside = inside.log_z + std::log(2.0), .normalizer = Normalizer::learned};
  const TopK found = answer(twice, {.k = 5});
  EXPECT_EQ(found.normalizer, Normalizer::learned);
  EXPECT_NEAR(found.log_z, inside.log_z + std::log(3.0), 1e-9);
  EXPECT_EQ(found.log_z_low, found.log_z);
  EXPECT_EQ(found.log_z_high, found.log_z);
  Candidates limited = twice;
  limited.most_outside = 0.0;
  EXPECT_NEAR(answer(limited, {.k = 5}).log_z, inside.log_z + std::log(2.0), 1e-9);
}

TEST_F(CandidatesTest, BiasedTokensAreTakenOffTheLearnedMass) {
  // Of the mass outside tokens 200 and 300 are a part that is known.
  const TopK plain = truth({.k = 500});
  const auto mass_of = [&plain](TokenId id) {
    const auto at = std::find(plain.ids.begin(), plain.ids.end(), id) - plain.ids.begin();
    return std::exp(static_cast<double>(plain.logits[static_cast<std::size_t>(at)]));
  };
  double inside = 0.0;
  for (const TokenId id : ids_) inside += mass_of(id);
  const double outside = std::exp(plain.log_z) - inside;
  const Candidates exactly = {.ids = ids_, .outside = std::log(outside), .normalizer = Normalizer::learned};
  const std::vector<TokenBias> bias = {{3, 1.0F}, {200, 0.5F}, {300, -2.0F}};
  EXPECT_NEAR(answer(exactly, {.k = 5, .logit_bias = bias}).log_z, truth({.k = 5, .logit_bias = bias}).log_z,
              1e-5);

  Candidates too_little = exactly;  // than the biased tokens alone
  too_little.outside = std::log(mass_of(200)) - 1.0;
  const double known = inside + mass_of(3) * (std::exp(1.0) - 1.0) + mass_of(200) * std::exp(0.5) +
                       mass_of(300) * std::exp(-2.0);
  EXPECT_NEAR(answer(too_little, {.k = 5, .logit_bias = bias}).log_z, std::log(known), 1e-5);
}

TEST_F(CandidatesTest, AFewForbiddenTokensAreTakenOffTheLearnedMass) {
  // One of them is a candidate, the others are a part of the mass outside.
  const TopK plain = truth({.k = 500});
  double inside = 0.0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const bool is_candidate = std::find(ids_.begin(), ids_.end(), plain.ids[i]) != ids_.end();
    if (is_candidate) inside += std::exp(static_cast<double>(plain.logits[i]));
  }
  const Candidates exactly = {
      .ids = ids_, .outside = std::log(std::exp(plain.log_z) - inside), .normalizer = Normalizer::learned};
  TokenMask mask = TokenMask::all(500);
  std::size_t forbidden = 0;
  for (const TokenId id : {ids_[1], plain.ids[0], plain.ids[1]}) {
    forbidden += mask.allows(id) ? 1U : 0U;
    mask.forbid(id);
  }
  ASSERT_GE(forbidden, 2U);
  const TopK found = answer(exactly, {.k = 3, .allowed = mask});
  EXPECT_EQ(found.normalizer, Normalizer::learned);
  EXPECT_NEAR(found.log_z, truth({.k = 3, .allowed = mask}).log_z, 1e-5);
}

TEST_F(CandidatesTest, BiasedTokensThatAreNoCandidatesAreNotTakenOffTwice) {
  // What was learned is outside of the best 100, of which the query biases two.
  const TopK plain = truth({.k = 500});
  std::vector<TokenBias> bias = {{plain.ids[0], 0.5F}, {plain.ids[40], -1.0F}, {plain.ids[400], 1.0F}};
  std::vector<TokenId> ids = plain.ids;
  for (const TokenBias& one : bias) std::erase(ids, one.id);
  ids.resize(100);
  double best = 0.0;
  for (std::size_t i = 0; i < 100; ++i) best += std::exp(static_cast<double>(plain.logits[i]));
  const Candidates apart = {.ids = ids,
                            .outside = std::log(std::exp(plain.log_z) - best),
                            .normalizer = Normalizer::learned,
                            .edited_apart = true};
  std::sort(bias.begin(), bias.end(), [](const TokenBias& a, const TokenBias& b) { return a.id < b.id; });
  EXPECT_NEAR(answer(apart, {.k = 5, .logit_bias = bias}).log_z, truth({.k = 5, .logit_bias = bias}).log_z,
              1e-5);
}

TEST(LearnedCandidates, AreNotReadWhereMoreAreWantedThanThereAre) {
  const SoftmaxLayer layer = random_layer(1000, 16, 3);
  const RowMajorMatrix contexts = testing::clustered_contexts(400, 16, 8, 5);
  const auto head = L2S::train(layer, contexts, {.clusters = 8, .budget = 20.0});
  TokenMask mask(1000);
  for (TokenId id = 0; id < 1000; ++id) mask.allow(id);
  mask.forbid(3);
  Workspace workspace;
  for (Eigen::Index q = 0; q < 20; ++q) {
    const Eigen::VectorXf h = contexts.row(q);
    const auto found = head->candidates(h.data(), 16, {.k = 200, .allowed = mask}, workspace);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->everything);
  }
}

}  // namespace
}  // namespace topksoftmax
