// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/precision.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;
using testing::Reference;

constexpr Eigen::Index kVocab = 300;
constexpr Eigen::Index kDim = 12;

TEST(GroundTruth, HoldsTheExactTopKAndLogZ) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const RowMajorMatrix contexts = random_matrix(50, kDim, 2);
  const GroundTruth truth = find_ground_truth(layer, contexts, 5, 7);
  ASSERT_EQ(truth.contexts, 50U);
  ASSERT_EQ(truth.references.size(), 7U);
  EXPECT_EQ(truth.references.front(), 0U);
  for (std::size_t i = 0; i < truth.contexts; ++i) {
    const TopK exact = Exact::make(layer)->query(contexts.row(static_cast<Eigen::Index>(i)), {.k = 5});
    EXPECT_TRUE(std::equal(exact.ids.begin(), exact.ids.end(), truth.top(i).begin(), truth.top(i).end()));
  }
  for (std::size_t r = 0; r < truth.references.size(); ++r) {
    const Reference reference(layer, contexts.row(static_cast<Eigen::Index>(truth.references[r])));
    EXPECT_NEAR(truth.log_z[r], reference.log_z, 1e-12);
  }
}

// Of more rows than are taken at a time.
TEST(GroundTruth, AddsUpTheLogZOfALargeVocabulary) {
  const SoftmaxLayer layer = random_layer(9000, kDim, 1);
  const RowMajorMatrix contexts = random_matrix(3, kDim, 2);
  const GroundTruth truth = find_ground_truth(layer, contexts, 5, 3);
  for (std::size_t i = 0; i < truth.contexts; ++i) {
    const Reference reference(layer, contexts.row(static_cast<Eigen::Index>(i)));
    EXPECT_NEAR(truth.log_z[i], reference.log_z, 1e-12);
  }
}

TEST(GroundTruth, TakesStridedContextsAndAKBeyondV) {
  const SoftmaxLayer layer = random_layer(3, kDim, 1);
  const RowMajorMatrix wide = random_matrix(9, kDim + 5, 2);
  const GroundTruth truth = find_ground_truth(layer, wide.leftCols(kDim), 10, 100);
  EXPECT_EQ(truth.k, 3U);
  EXPECT_EQ(truth.references.size(), 9U);
  const Reference reference(layer, wide.row(8).head(kDim));
  EXPECT_NEAR(truth.log_z[8], reference.log_z, 1e-12);
}

TEST(Precision, OfAnExactBackendIsOne) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = random_matrix(40, kDim, 4);
  const GroundTruth truth = find_ground_truth(layer, contexts, 5);
  const auto fused = Fused::make(layer);
  const Precision precision =
      measure_precision(layer, contexts, truth, answer_contexts(*fused, contexts, {.k = 5}));
  EXPECT_EQ(precision.at, std::vector<double>(5, 1.0));
  EXPECT_EQ(precision.certified_rate, 1.0);
  EXPECT_EQ(precision.fell_back_rate, 0.0);
  EXPECT_EQ(precision.bytes_read_mean, static_cast<double>(layer.bytes()));
  EXPECT_EQ(precision.candidates_mean, static_cast<double>(kVocab));
  EXPECT_LT(precision.log_prob_error.max, 1e-4);
  EXPECT_TRUE(std::isnan(precision.log_z_width_mean));
}

TEST(Precision, CountsTheTokensInCommonWithTheExactOnes) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = random_matrix(2, kDim, 4);
  const GroundTruth truth = find_ground_truth(layer, contexts, 4);
  const auto fused = Fused::make(layer);
  std::vector<TopK> answers = answer_contexts(*fused, contexts, {.k = 4});
  // Context 0: the best two change places. Context 1: the second is lost, and the answer ends early.
  std::swap(answers[0].ids[0], answers[0].ids[1]);
  answers[1].ids = {answers[1].ids[0], answers[1].ids[2], answers[1].ids[3]};
  answers[1].certified = false;
  const Precision precision = measure_precision(layer, contexts, truth, answers);
  EXPECT_DOUBLE_EQ(precision.at[0], 0.5);
  EXPECT_DOUBLE_EQ(precision.at[1], (2 + 1) / 4.0);
  EXPECT_DOUBLE_EQ(precision.at[2], (3 + 2) / 6.0);
  EXPECT_DOUBLE_EQ(precision.at[3], (4 + 3) / 8.0);
  EXPECT_DOUBLE_EQ(precision.certified_rate, 0.5);
}

TEST(Precision, CountsATokenOnceAndNoneBeyondK) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = random_matrix(1, kDim, 4);
  const GroundTruth truth = find_ground_truth(layer, contexts, 3);
  const std::span<const TokenId> best = truth.top(0);
  std::vector<TopK> answers(1);
  answers[0].ids = {best[2], best[2], best[0], best[1]};
  const Precision precision = measure_precision(layer, contexts, truth, answers);
  ASSERT_EQ(precision.at.size(), 3U);
  EXPECT_DOUBLE_EQ(precision.at[0], 0.0);
  EXPECT_DOUBLE_EQ(precision.at[1], 0.0);
  EXPECT_DOUBLE_EQ(precision.at[2], 2 / 3.0);
}

TEST(Precision, OfLongListsIsThatOfEachPrefix) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = random_matrix(5, kDim, 4);
  const GroundTruth truth = find_ground_truth(layer, contexts, 100);
  const auto other = Fused::make(random_layer(kVocab, kDim, 5));  // another layer's: partly right
  const std::vector<TopK> answers = answer_contexts(*other, contexts, {.k = 100});
  const Precision precision = measure_precision(layer, contexts, truth, answers);
  for (std::size_t k = 1; k <= 100; ++k) {
    std::size_t common = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      const std::span<const TokenId> best = truth.top(i).first(k);
      common += static_cast<std::size_t>(
          std::count_if(answers[i].ids.begin(), answers[i].ids.begin() + static_cast<std::ptrdiff_t>(k),
                        [&](TokenId id) { return std::find(best.begin(), best.end(), id) != best.end(); }));
    }
    EXPECT_EQ(precision.at[k - 1], static_cast<double>(common) / (5.0 * static_cast<double>(k))) << k;
  }
}

TEST(Precision, FindsHowWrongLogProbabilitiesAre) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = random_matrix(20, kDim, 4);
  const GroundTruth truth = find_ground_truth(layer, contexts, 3);
  const auto fused = Fused::make(layer);
  std::vector<TopK> answers = answer_contexts(*fused, contexts, {.k = 3});
  answers[13].log_z -= 0.25;
  const LogProbError of_one = measure_precision(layer, contexts, truth, answers).log_prob_error;
  EXPECT_LT(of_one.median, 1e-4);
  EXPECT_NEAR(of_one.p99, 0.25, 1e-4) << "3 of 60 tokens";
  EXPECT_NEAR(of_one.max, 0.25, 1e-4);
  for (std::size_t i = 0; i < 20; ++i) answers[i].log_z += 0.01 * static_cast<double>(i);
  const LogProbError of_all = measure_precision(layer, contexts, truth, answers).log_prob_error;
  EXPECT_NEAR(of_all.median, 0.095, 1e-4);
  EXPECT_NEAR(of_all.max, 0.19, 1e-4);

  const std::vector<TopK> without = answer_contexts(*fused, contexts, {.k = 3, .probabilities = false});
  const LogProbError of_none = measure_precision(layer, contexts, truth, without).log_prob_error;
  EXPECT_TRUE(std::isnan(of_none.median) && std::isnan(of_none.p99) && std::isnan(of_none.max));
}

TEST(Precision, ReportsTheWidthOfIntervals) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = random_matrix(20, kDim, 4);
  const GroundTruth truth = find_ground_truth(layer, contexts, 3);
  std::vector<TopK> answers(20);
  for (std::size_t i = 0; i < 10; ++i) {
    answers[i].normalizer = Normalizer::interval;
    answers[i].log_z_low = 1.0;
    answers[i].log_z_high = 1.0 + static_cast<double>(i);
  }
  EXPECT_DOUBLE_EQ(measure_precision(layer, contexts, truth, answers).log_z_width_mean, 4.5);
}

TEST(Precision, AsksInBatchesOfTheSizeWanted) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = random_matrix(23, kDim, 4);
  const auto fused = Fused::make(layer);
  const std::vector<TopK> one = answer_contexts(*fused, contexts, {.k = 3});
  const std::vector<TopK> batched = answer_contexts(*fused, contexts, {.k = 3}, 5);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(batched[i].ids, one[i].ids);
}

TEST(Precision, RefusesWhatDoesNotBelongTogether) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = random_matrix(4, kDim, 4);
  const GroundTruth truth = find_ground_truth(layer, contexts, 3);
  EXPECT_THROW(measure_precision(layer, contexts, truth, std::vector<TopK>(3)), std::invalid_argument);
  EXPECT_THROW(answer_contexts(*Fused::make(layer), contexts, {.k = 3}, 0), std::invalid_argument);
  EXPECT_THROW(answer_contexts(*Fused::make(layer), random_matrix(4, kDim + 1, 4), {.k = 3}),
               std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
