// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/adaptive/adaptive_softmax.hpp"

#include <gtest/gtest.h>

#include <Eigen/QR>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "support/layers.hpp"
#include "support/saved_index.hpp"
#include "topksoftmax/adaptive/build.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;

constexpr Eigen::Index kVocab = 600;
constexpr Eigen::Index kDim = 16;

/// A layer whose first tokens are the likely ones.
SoftmaxLayer frequent_first() {
  Eigen::VectorXf b = random_vector(kVocab, 2, 0.3F);
  for (Eigen::Index i = 0; i < kVocab; ++i) b[i] -= 0.01F * static_cast<float>(i);
  return SoftmaxLayer::own(random_matrix(kVocab, kDim, 1, 0.3F), b);
}

TEST(AdaptiveSoftmax, BoundedGatesLoseNothing) {
  const SoftmaxLayer layer = frequent_first();
  const auto head = AdaptiveSoftmax::build(layer, {.head = 40, .tail_tiers = 7});
  const auto exact = Exact::make(layer);
  for (const float size : {0.05F, 0.5F, 3.0F}) {
    for (unsigned i = 0; i < 30; ++i) {
      const Eigen::VectorXf h = random_vector(kDim, 100 + i, size);
      const TopK answer = head->query(h, {.k = 5});
      const TopK expected = exact->query(h, {.k = 5});
      EXPECT_EQ(answer.ids, expected.ids);
      EXPECT_EQ(answer.logits, expected.logits);
      if (size == 0.05F) {
        EXPECT_LT(answer.work.candidates, layer.vocab());
      }
    }
  }
}

TEST(AdaptiveSoftmax, BoundedGatesCoverWhatIsRounded) {
  // Of the tier's two rows one is all a little above a midpoint between floats that its sum runs into, the
  // mean all a little below. The head's bias is the next float below that row's logit.
  constexpr Eigen::Index dim = 4096;
  for (int exponent = -21; exponent <= -12; ++exponent) {
    const float midpoint = 1.0F + std::ldexp(1.0F, exponent);
    RowMajorMatrix W = RowMajorMatrix::Zero(3, dim);
    W.row(1).setConstant(midpoint + 0x1p-23F);
    W.row(2).setConstant(midpoint - 0x3p-23F);
    const Eigen::VectorXf h = Eigen::VectorXf::Ones(dim);
    const float logit = Exact::make(SoftmaxLayer::own(W))->query(h).logits[0];
    const Eigen::Vector3f b(std::nextafter(logit, 0.0F), 0.0F, 0.0F);
    const SoftmaxLayer layer = SoftmaxLayer::own(W, b);
    const auto head = AdaptiveSoftmax::build(layer, {.head = 1, .tail_tiers = 1, .counts = {9, 1, 1}});
    EXPECT_EQ(head->query(h).ids, Exact::make(layer)->query(h).ids) << exponent;
  }
}

TEST(AdaptiveSoftmax, BoundedGatesHoldAtTheEndsOfFloats) {
  constexpr Eigen::Index dim = 64;
  RowMajorMatrix W = random_matrix(1, dim, 4).replicate(200, 1) + random_matrix(200, dim, 5, 1e-6F);
  for (const float bias : {0.0F, 1.0F, 1e30F, std::numeric_limits<float>::max()}) {
    Eigen::VectorXf b = Eigen::VectorXf::Constant(200, bias);
    b[7] = -std::numeric_limits<float>::max();
    const SoftmaxLayer layer = SoftmaxLayer::own(W, b);
    const auto head = AdaptiveSoftmax::build(layer, {.head = 10, .tail_tiers = 19});
    const auto exact = Exact::make(layer);
    for (const float size : {1e-44F, 1e-40F, 1e-20F, 1.0F, 1e20F, 1e29F, 1e36F}) {
      for (unsigned i = 0; i < 20; ++i) {
        const Eigen::VectorXf h = random_vector(dim, i, size);
        EXPECT_EQ(head->query(h, {.k = 3}).ids, exact->query(h, {.k = 3}).ids) << bias << ' ' << size;
      }
    }
  }
}

TEST(AdaptiveSoftmax, FullCautionIsExactOnWhatItLearnedFrom) {
  const SoftmaxLayer layer = frequent_first();
  const RowMajorMatrix H = clustered_contexts(400, kDim, 6, 3);
  const auto head = AdaptiveSoftmax::build(layer, H, {.head = 60, .tail_tiers = 9, .caution = 1.0});
  const auto exact = Exact::make(layer);
  std::size_t scored = 0;
  for (Eigen::Index i = 0; i < H.rows(); ++i) {
    const TopK answer = head->query(H.row(i), {.k = 5});
    EXPECT_EQ(answer.ids, exact->query(H.row(i), {.k = 5}).ids);
    scored += answer.work.candidates;
  }
  EXPECT_LT(scored, static_cast<std::size_t>(H.rows()) * layer.vocab() * 3 / 4);
}

TEST(AdaptiveSoftmax, LessCautionScoresLess) {
  const SoftmaxLayer layer = frequent_first();
  const RowMajorMatrix H = clustered_contexts(400, kDim, 6, 3);
  std::size_t before = std::numeric_limits<std::size_t>::max();
  for (const double caution : {1.0, 0.9, 0.5, 0.0}) {
    const auto head = AdaptiveSoftmax::build(layer, H, {.head = 60, .tail_tiers = 9, .caution = caution});
    std::size_t scored = 0;
    for (Eigen::Index i = 0; i < 100; ++i) scored += head->query(H.row(i), {.k = 5}).work.candidates;
    EXPECT_LT(scored, before) << caution;
    before = scored;
  }
}

/// The largest logit of the tier in each context, in float64.
Eigen::VectorXd largest_of(const SoftmaxLayer& layer, std::span<const TokenId> tier,
                           const RowMajorMatrix& H) {
  const Eigen::MatrixXd W = layer.weights().cast<double>();
  Eigen::VectorXd largest = Eigen::VectorXd::Constant(H.rows(), -std::numeric_limits<double>::infinity());
  for (const TokenId id : tier) {
    const Eigen::VectorXd logits =
        (H.cast<double>() * W.row(id).transpose()).array() + static_cast<double>(layer.biases()[id]);
    largest = largest.cwiseMax(logits);
  }
  return largest;
}

/// What is left of values by the best linear function of the contexts: their distance from it.
double residual_of(const Eigen::VectorXd& values, const RowMajorMatrix& H) {
  Eigen::MatrixXd A(H.rows(), H.cols() + 1);
  A << H.cast<double>(), Eigen::VectorXd::Ones(H.rows());
  return (values - A * A.colPivHouseholderQr().solve(values)).norm();
}

TEST(AdaptiveSoftmax, GatesFitTheirTiersAndLieAboveAShareOfThem) {
  const SoftmaxLayer layer = frequent_first();
  const RowMajorMatrix H = clustered_contexts(400, kDim, 6, 3);
  for (const double caution : {0.3, 0.9}) {
    const detail::AdaptiveTiers tiers(layer, {.head = 60, .tail_tiers = 9, .caution = caution},
                                      Contexts::of(H), SerialExecutor());
    ASSERT_EQ(tiers.size(), 9U);
    const kernels::Rows gates = tiers.gates();
    for (std::size_t t = 0; t < tiers.size(); ++t) {
      const Eigen::VectorXd largest = largest_of(layer, tiers.tier(t), H);
      const Eigen::Map<const Eigen::VectorXf> gate(static_cast<const float*>(gates.data) + t * kDim, kDim);
      const Eigen::VectorXd says =
          (H.cast<double>() * gate.cast<double>()).array() + static_cast<double>(gates.bias[t]);
      const double below = (largest.array() <= says.array()).cast<double>().mean();
      EXPECT_NEAR(below, caution, 2.5 / 400.0) << t;
      const Eigen::VectorXd missing = largest - says;
      EXPECT_LT((missing.array() - missing.mean()).matrix().norm(), 1.01 * residual_of(largest, H)) << t;
    }
  }
}

TEST(AdaptiveSoftmax, AViewOfNoContextsIsNone) {
  const SoftmaxLayer layer = frequent_first();
  const AdaptiveSoftmaxOptions options = {.head = 40, .tail_tiers = 7};
  EXPECT_EQ(testing::saved(*AdaptiveSoftmax::build(layer, Contexts(), options)),
            testing::saved(*AdaptiveSoftmax::build(layer, options)));
}

TEST(AdaptiveSoftmax, TheHeadIsTheMostFrequentTokens) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 5);
  std::vector<std::int64_t> counts(kVocab, 1);
  for (const std::size_t token : {5U, 77U, 500U}) counts[token] = 100;
  const RowMajorMatrix H = clustered_contexts(100, kDim, 6, 3);
  const auto head =
      AdaptiveSoftmax::build(layer, H, {.head = 3, .tail_tiers = 3, .caution = 0.0, .counts = counts});
  Workspace workspace;
  Query query;
  const Eigen::VectorXf h = H.row(0);
  query.h = h.data();
  const Candidates found = head->screener().screen(query, workspace);
  ASSERT_GE(found.ids.size(), 3U);
  EXPECT_EQ(std::set<TokenId>(found.ids.begin(), found.ids.begin() + 3), (std::set<TokenId>{5, 77, 500}));
}

/// A layer in which the rows of each of `tiers` tiers behind the head are equal, so that log Σ exp over a
/// tier is linear in the context.
SoftmaxLayer equal_rows_in_tiers(Eigen::Index head, Eigen::Index tiers) {
  RowMajorMatrix W = random_matrix(kVocab, kDim, 1, 0.3F);
  Eigen::VectorXf b = Eigen::VectorXf::Zero(kVocab);
  const Eigen::Index size = (kVocab - head) / tiers;
  for (Eigen::Index i = head; i < kVocab; ++i) {
    const Eigen::Index first = head + (i - head) / size * size;
    if (i != first) W.row(i) = W.row(first);
    b[i] = -1.0F - 0.05F * static_cast<float>((i - head) / size);
  }
  return SoftmaxLayer::own(W, b);
}

TEST(AdaptiveSoftmax, CountsTheTiersThatAreNotScoredForEveryK) {
  const SoftmaxLayer layer = equal_rows_in_tiers(60, 9);
  const RowMajorMatrix H = clustered_contexts(3000, kDim, 6, 3);
  std::vector<std::int64_t> counts(kVocab);
  std::iota(counts.rbegin(), counts.rend(), 0);
  const auto head =
      AdaptiveSoftmax::build(layer, H, {.head = 60, .tail_tiers = 9, .caution = 1.0, .counts = counts});
  ASSERT_TRUE(head->log_z_error());
  EXPECT_LT(head->log_z_error()->p99, 1e-3);
  const auto exact = Exact::make(layer);
  for (const std::size_t k : {1U, 4U, 30U}) {
    std::size_t learned = 0;
    for (Eigen::Index i = 0; i < 200; ++i) {
      const TopK answer = head->query(H.row(i), {.k = k});
      EXPECT_NEAR(answer.log_z, exact->query(H.row(i)).log_z, 2e-3) << k;
      learned += answer.normalizer == Normalizer::learned ? 1U : 0U;
      EXPECT_EQ(answer.normalizer == Normalizer::learned, answer.work.candidates < layer.vocab());
    }
    EXPECT_GT(learned, 20U) << k;
  }
  EXPECT_EQ(head->query(H.row(0), {.effort = 3}).normalizer, Normalizer::candidates);
  TokenMask mask = TokenMask::all(kVocab);
  EXPECT_EQ(head->query(H.row(0), {.allowed = mask}).normalizer, Normalizer::learned);
  for (TokenId id = 0; id < 40; ++id) mask.forbid(id);
  EXPECT_EQ(head->query(H.row(0), {.allowed = mask}).normalizer, Normalizer::candidates);
}

TEST(AdaptiveSoftmax, LearnsNoMassesWithoutTiersOrContexts) {
  const RowMajorMatrix H = clustered_contexts(200, kDim, 6, 3);
  EXPECT_TRUE(AdaptiveSoftmax::build(frequent_first(), H, {.head = 60})->log_z_error());
  EXPECT_FALSE(AdaptiveSoftmax::build(frequent_first(), H, {.head = kVocab})->log_z_error());
  EXPECT_FALSE(AdaptiveSoftmax::build(frequent_first(), H, {.head = 60, .outside_sample = 0})->log_z_error());
  EXPECT_FALSE(AdaptiveSoftmax::build(frequent_first(), {.head = 60})->log_z_error());
}

TEST(AdaptiveSoftmax, EffortScoresTiersWhateverTheirGatesSay) {
  const SoftmaxLayer layer = frequent_first();
  const RowMajorMatrix H = clustered_contexts(100, kDim, 6, 3);
  const auto head = AdaptiveSoftmax::build(layer, H, {.head = 60, .tail_tiers = 9, .caution = 0.5});
  EXPECT_GE(head->query(H.row(0), {.k = 1, .effort = 4}).work.candidates, 60U + 3U * 60U);
  EXPECT_EQ(head->query(H.row(0), {.k = 1, .effort = 10}).work.candidates, layer.vocab());
}

TEST(AdaptiveSoftmax, ABiasAgainstTheHeadOpensTheTail) {
  const SoftmaxLayer layer = frequent_first();
  const auto head = AdaptiveSoftmax::build(layer, {.head = 10, .tail_tiers = 7});
  const Eigen::VectorXf h = random_vector(kDim, 9, 0.05F);
  std::vector<TokenBias> bias;
  for (TokenId id = 0; id < 20; ++id) bias.push_back({id, -30.0F});
  const TopK expected = Exact::make(layer)->query(h, {.k = 5, .logit_bias = bias});
  EXPECT_EQ(head->query(h, {.k = 5, .logit_bias = bias}).ids, expected.ids);
}

TEST(AdaptiveSoftmax, AHeadOfEverythingAndOneToken) {
  const SoftmaxLayer layer = random_layer(1, 3, 5);
  EXPECT_EQ(AdaptiveSoftmax::build(layer)->query(random_vector(3, 1)).ids, std::vector<TokenId>{0});
  const SoftmaxLayer wide = random_layer(50, 3, 5);
  const auto all = AdaptiveSoftmax::build(wide, {.head = 50});
  EXPECT_EQ(all->query(random_vector(3, 1), {.k = 50}).size(), 50U);
}

TEST(AdaptiveSoftmax, RefusesUnusableOptions) {
  const SoftmaxLayer layer = random_layer(50, 3, 5);
  EXPECT_THROW(AdaptiveSoftmax::build(layer, {.head = 0}), Error);
  EXPECT_THROW(AdaptiveSoftmax::build(layer, {.head = 51}), Error);
  EXPECT_THROW(AdaptiveSoftmax::build(layer, {.tail_tiers = 0}), Error);
  EXPECT_THROW(AdaptiveSoftmax::build(layer, {.caution = 1.5}), Error);
  EXPECT_THROW(AdaptiveSoftmax::build(layer, {.context_sample = 0}), Error);
  EXPECT_THROW(AdaptiveSoftmax::build(layer, {.counts = {1, 2}}), Error);
  EXPECT_THROW(AdaptiveSoftmax::build(layer, random_matrix(5, 4, 1)), Error);
}

}  // namespace
}  // namespace topksoftmax
