// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/labelling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax {
namespace {

using detail::LabelOptions;
using testing::clustered_contexts;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;

constexpr LabelOptions kOptions = {
    .top = 3, .depth = 9, .near_miss_value = 0.7, .near_miss_temperature = 0.5};

void expect_equal(const Labels& labels, const Labels& others) {
  EXPECT_EQ(labels.depth, others.depth);
  EXPECT_EQ(labels.top, others.top);
  EXPECT_EQ(labels.ids, others.ids);
  EXPECT_EQ(labels.weights, others.weights);
}

/// A layer of which every row is there three times.
SoftmaxLayer thrice(Eigen::Index vocab, Eigen::Index dim) {
  const RowMajorMatrix W = random_matrix(vocab, dim, 4, 0.3F);
  return SoftmaxLayer::own(RowMajorMatrix(W.replicate(3, 1)), random_vector(vocab, 5).replicate(3, 1));
}

TEST(Labelling, BoundsAndScansFindTheSameLabels) {
  RowMajorMatrix contexts = clustered_contexts(700, 24, 6, 2);
  contexts.row(11).setZero();
  contexts.row(12) *= 1e20F;
  for (const SoftmaxLayer& layer : {random_layer(900, 24, 1), thrice(300, 24), random_layer(5, 24, 3)}) {
    const auto certified = Certified::build(layer, contexts, {.outside_sample = 0});
    const Labels scanned =
        detail::exact_labels(Fused(layer), Contexts::of(contexts), kOptions, {}, SerialExecutor());
    expect_equal(scanned,
                 detail::exact_labels(*certified, Contexts::of(contexts), kOptions, {}, ThreadPool(3)));
    expect_equal(scanned,
                 detail::cheapest_labels(layer, Contexts::of(contexts), kOptions, {}, default_executor()));
  }
}

TEST(Labelling, NearMissesWeighTheirOddsOfBeingLabels) {
  const RowMajorMatrix W = (RowMajorMatrix(5, 1) << 0.0F, 3.0F, 1.5F, 2.5F, -9.0F).finished();
  const RowMajorMatrix h = RowMajorMatrix::Ones(1, 1);
  const Labels labels = detail::exact_labels(
      Fused(SoftmaxLayer::own(W)), Contexts::of(h),
      {.top = 2, .depth = 4, .near_miss_value = 0.7, .near_miss_temperature = 0.5}, {}, SerialExecutor());
  EXPECT_EQ(labels.top, 2U);
  EXPECT_EQ(labels.ids, (std::vector<TokenId>{1, 3, 2, 0}));
  ASSERT_EQ(labels.weights.size(), 4U);
  EXPECT_EQ(labels.weights[0], 1.0F);
  EXPECT_EQ(labels.weights[1], 1.0F);
  EXPECT_NEAR(labels.weights[2], 0.7 * std::exp(-2.0), 1e-7);
  EXPECT_NEAR(labels.weights[3], 0.7 * std::exp(-5.0), 1e-7);
}

TEST(Labelling, BoundsAreMadeWhereTheySaveWork) {
  const SoftmaxLayer wide = random_layer(40000, 16, 1);
  EXPECT_TRUE(detail::bounds_may_pay(wide, 6000));
  EXPECT_FALSE(detail::bounds_may_pay(wide, 3000)) << "too few contexts";
  EXPECT_FALSE(detail::bounds_may_pay(random_layer(1000, 16, 1), 1000000)) << "a scan costs next to nothing";

  const RowMajorMatrix contexts = clustered_contexts(6000, 16, 6, 2);
  std::set<std::string> steps;
  double last = 0.0;
  const TrainingProgress progress = [&](std::string_view step, double done) {
    steps.emplace(step);
    EXPECT_GE(done, last);
    last = done;
  };
  const Labels labels =
      detail::cheapest_labels(wide, Contexts::of(contexts), kOptions, progress, default_executor());
  EXPECT_TRUE(steps.contains("placing the rows"));
  EXPECT_TRUE(steps.contains("labelling the contexts"));
  EXPECT_EQ(last, 1.0);
  expect_equal(labels,
               detail::exact_labels(Fused(wide), Contexts::of(contexts), kOptions, {}, default_executor()));
}

TEST(Labelling, BoundsThatRuleNothingOutDoNotPay) {
  // Rows of one length in all directions, and contexts likewise: bounds cannot tell them apart.
  const SoftmaxLayer layer = SoftmaxLayer::own(random_matrix(20000, 64, 1).rowwise().normalized());
  const RowMajorMatrix contexts = random_matrix(100, 64, 2).rowwise().normalized();
  const auto certified = Certified::build(layer, contexts, {.prefix = 4, .width = 4, .outside_sample = 0});
  EXPECT_FALSE(detail::bounds_pay(*certified, Contexts::of(contexts), 9));
}

}  // namespace
}  // namespace topksoftmax
