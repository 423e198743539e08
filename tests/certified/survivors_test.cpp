// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/survivors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/threshold.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::Reference;

constexpr Eigen::Index kVocab = 2000;
constexpr Eigen::Index kDim = 24;

struct Asked {
  Eigen::VectorXf h;
  Query query;
  Workspace workspace;

  explicit Asked(Eigen::VectorXf context, std::size_t k = 5) : h(std::move(context)) {
    query.h = h.data();
    query.k = k;
  }

  detail::BoundedQuery of(const Certified& head) {
    return detail::bounded(head.layer(), head.screener().index(), query, workspace);
  }
};

// The threshold is a logit, what tails bound are products: of a scale above 1 they are smaller.
TEST(Survivors, HoldAllThatReachTheThresholdUnderATransform) {
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  std::size_t dropped = 0;
  for (const LogitTransform& transform :
       {LogitTransform{}, LogitTransform{.scale = 3.0F}, LogitTransform{.scale = 2.0F, .soft_cap = 9.0F}}) {
    const SoftmaxLayer layer = random_layer(kVocab, kDim, 3).with(transform);
    const auto head =
        Certified::build(layer, contexts, {.prefix = 8, .width = 16, .boxes = BoundBoxes::never});
    for (Eigen::Index q = 0; q < 40; ++q) {
      Asked asked(contexts.row(q));
      const Reference reference(layer, asked.h);
      std::vector<double> sorted = reference.logits;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const auto threshold = static_cast<float>(0.5 * (sorted[4] + sorted[5]));
      const Candidates found = detail::candidates_reaching(asked.of(*head), threshold, kVocab);
      if (found.everything) continue;
      for (std::size_t token = 0; token < reference.logits.size(); ++token) {
        if (reference.logits[token] < static_cast<double>(threshold)) continue;
        ASSERT_TRUE(std::count(found.ids.begin(), found.ids.end(), static_cast<TokenId>(token)) == 1)
            << "token " << token << ", scale " << transform.scale;
      }
      dropped += static_cast<std::size_t>(kVocab) - found.ids.size();
    }
  }
  EXPECT_GT(dropped, 3 * 40 * kVocab / 2);
}

// What is outside of the survivors is bounded however far below the threshold tails are asked.
TEST(Survivors, LeaveOutWhatTheirBoundsSayOfOthers) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  for (const CertifiedOptions& options :
       {CertifiedOptions{.prefix = 24, .width = 24}, {.prefix = 8, .width = 24}}) {
    for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
      CertifiedOptions boxed = options;
      boxed.boxes = boxes;
      const auto head = Certified::build(layer, contexts, boxed);
      for (Eigen::Index q = 0; q < 20; ++q) {
        Asked asked(contexts.row(q));
        const detail::BoundedQuery bounded = asked.of(*head);
        const std::vector<double> logits = Reference(layer, asked.h).logits;
        std::vector<double> sorted = logits;
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        const auto threshold = static_cast<float>(0.5 * (sorted[9] + sorted[10]));
        for (const float depth : {0.0F, 1.0F, 3.0F}) {
          const float lower = threshold - depth;
          const detail::Survivors found = detail::survivors(bounded, detail::rows_reaching(bounded, lower),
                                                            threshold, head->screener().index().rows());
          double sum = 0.0;
          for (const double logit : logits) sum += std::exp(logit - static_cast<double>(threshold));
          for (const TokenId id : found.ids)
            sum -= std::exp(logits[static_cast<std::size_t>(id)] - static_cast<double>(threshold));
          ASSERT_LE(found.outside.low, sum * (1.0 + 1e-6)) << "depth " << depth;
          ASSERT_GE(found.outside.high, sum * (1.0 - 1e-6)) << "depth " << depth;
        }
      }
    }
  }
}

// A threshold may come from elsewhere, another rank or a backend that proposes.
TEST(Survivors, BoundsThatDoNotHoldRuleNothingOut) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const auto head = Certified::build(layer, clustered_contexts(300, kDim, 6, 9), {.width = 16});
  for (const Eigen::VectorXf& h : {Eigen::VectorXf(Eigen::VectorXf::Zero(kDim)),
                                   Eigen::VectorXf(Eigen::VectorXf::Constant(kDim, 1e-30F)),
                                   Eigen::VectorXf(Eigen::VectorXf::Constant(kDim, 1e30F))}) {
    Asked asked(h);
    const Candidates found = detail::candidates_reaching(asked.of(*head), 0.5F, kVocab);
    EXPECT_TRUE(found.everything);
    EXPECT_TRUE(found.ids.empty());
  }
}

// Some are found on the way, where a lower cut's rows are then looked for.
TEST(Survivors, AreNoneWhereNoCutMakesTheIntervalOfLogZNarrowEnough) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto head = Certified::build(layer, contexts, {.prefix = 8, .width = 16, .boxes = boxes});
    Workspace workspace;
    for (Eigen::Index q = 0; q < 20; ++q) {
      const Eigen::VectorXf h = contexts.row(q);
      const auto found = head->candidates(h.data(), kDim, {.k = 5, .log_z_tolerance = 1e-4}, workspace);
      ASSERT_TRUE(found->everything);
      ASSERT_TRUE(found->ids.empty());
      ASSERT_EQ(found->logits, nullptr);
    }
  }
}

TEST(ExpectedSurvivors, GoOnAsTheyDid) {
  const detail::TriedCut higher = {.width = 4.0, .survivors = 10.0};
  const detail::TriedCut lower = {.width = 2.0, .survivors = 30.0};
  EXPECT_NEAR(detail::expected_survivors(higher, lower, 2.0), 30.0, 1e-9);
  EXPECT_NEAR(detail::expected_survivors(higher, lower, 1.0), 90.0, 1e-9);
  EXPECT_NEAR(detail::expected_survivors(higher, lower, 0.5), 270.0, 1e-9);
  EXPECT_TRUE(std::isinf(detail::expected_survivors(higher, lower, 0.0)));
  EXPECT_TRUE(std::isinf(detail::expected_survivors(higher, {.width = 4.0, .survivors = 30.0}, 1.0)));
}

// What cannot get there is given up before much of the layer has been read.
TEST(Survivors, OfAnIntervalThatWillNotBeNarrowEnoughAreHardlyScored) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = 0.5F * clustered_contexts(300, kDim, 6, 9);
  const auto head = Certified::build(layer, contexts, {.prefix = 8, .width = 16});
  const double bytes = static_cast<double>(layer.rows().bytes(kVocab));
  double most = 0.0;
  for (Eigen::Index q = 0; q < 100; ++q) {
    const TopK answer = head->query(contexts.row(q), {.k = 5, .log_z_tolerance = 1e-3});
    ASSERT_EQ(answer.normalizer, Normalizer::exact);
    most = std::max(most, static_cast<double>(answer.work.bytes_read));
  }
  EXPECT_LT(most, 2.0 * bytes);
}

// A row whose logit may leave float's range on the way: no threshold is one that holds.
TEST(Survivors, LogitsThatMayOverflowRuleNothingOut) {
  const RowMajorMatrix W = random_layer(kVocab, kDim, 3).weights();
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const Eigen::VectorXf h = contexts.row(0);
  const auto found = [&](float factor) {
    RowMajorMatrix longer = W;
    longer.row(5) *= factor;
    const auto head = Certified::build(SoftmaxLayer::own(longer), contexts, {.prefix = 8, .width = 16});
    Asked asked(h);
    const Candidates candidates = detail::candidates_reaching(asked.of(*head), 1e30F, kVocab);
    return candidates.everything ? static_cast<std::size_t>(kVocab) : candidates.ids.size();
  };
  EXPECT_LT(found(1e30F), 10U);
  EXPECT_EQ(found(1e38F), kVocab);
}

TEST(Survivors, FewerTokensThanAreAskedForMakeNoThreshold) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  for (const std::size_t allowed : {1U, 9U, 90U}) {
    std::vector<std::uint64_t> words((kVocab + 63) / 64);
    for (std::size_t i = 0; i < allowed; ++i) words[7 * i / 64] |= std::uint64_t{1} << (7 * i % 64);
    for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
      const auto head = Certified::build(layer, contexts, {.width = 16, .boxes = boxes});
      const auto threshold = [&](std::size_t k) {
        Asked asked(contexts.row(3), k);
        asked.query.edits.allowed = AllowedTokens(words);
        std::size_t bytes_read = 0;
        return detail::threshold_from_best(asked.of(*head), bytes_read);
      };
      EXPECT_EQ(threshold(allowed + 1), detail::kNoThreshold) << allowed;
      EXPECT_EQ(threshold(allowed + 30), detail::kNoThreshold) << allowed;
      EXPECT_EQ(threshold(1) > detail::kNoThreshold, allowed >= 9) << allowed;
    }
  }
}

// Biased tokens are scored, and their mass is no longer what their rows' bounds say.
TEST(Survivors, OutsideOfThemBiasedTokensDoNotCount) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  std::vector<TokenBias> biases;
  for (TokenId id = 0; id < kVocab; ++id) {
    if (id % 20 != 0) biases.push_back({id, -60.0F});
  }
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto head = Certified::build(layer, contexts, {.width = 16, .boxes = boxes});
    for (Eigen::Index q = 0; q < 40; ++q) {
      const Eigen::VectorXf h = contexts.row(q);
      const TopK answer = head->query(h, {.k = 5, .logit_bias = biases});
      const Reference reference = Reference(layer, h).edited([](TokenId) { return true; }, biases);
      ASSERT_EQ(answer.normalizer, Normalizer::interval);
      ASSERT_LE(answer.log_z_low, reference.log_z + 1e-6);
      ASSERT_GE(answer.log_z_high, reference.log_z - 1e-6);
    }
  }
}

// Bounds that hold but for a probability cannot prove how wide an interval is.
TEST(Survivors, AnIntervalThatMustBeProvenTakesProvenBounds) {
  const SoftmaxLayer layer = random_layer(kVocab, 80, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, 80, 6, 9);
  const auto dithered = Certified::build(
      layer, contexts,
      {.prefix = 8, .int4_width = 32, .width = 80, .boxes = BoundBoxes::never, .failure_probability = 1e-6});
  ASSERT_EQ(dithered->query(contexts.row(0), {.k = 5}).normalizer, Normalizer::low_rank);
  for (Eigen::Index q = 0; q < 20; ++q) {
    const Eigen::VectorXf h = contexts.row(q);
    const TopK answer = dithered->query(h, {.k = 5, .log_z_tolerance = 0.5});
    EXPECT_EQ(answer.normalizer, Normalizer::exact);
    EXPECT_NEAR(answer.log_z, Reference(layer, h).log_z, 1e-4);
  }
}

}  // namespace
}  // namespace topksoftmax
