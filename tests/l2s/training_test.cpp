// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::error_of;

/// Contexts of four topics, which k-means finds, with labels that depend on one coordinate alone.
struct Task {
  RowMajorMatrix H = clustered_contexts(1500, 10, 4, 5);
  Labels labels;

  Task() {
    labels.depth = labels.top = 3;
    for (Eigen::Index i = 0; i < H.rows(); ++i) {
      const bool side = i / 4 % 2 == 0;
      H(i, 9) = side ? 1.0F : -1.0F;
      for (int n = 0; n < 3; ++n) {
        labels.ids.push_back(
            static_cast<TokenId>((side ? 100 : 0) + (static_cast<int>(i) * 7 + n * 11) % 30));
      }
    }
    labels.weights.assign(labels.ids.size(), 1.0F);
  }
};

L2SOptions small(double budget) {
  L2SOptions options;
  options.clusters = 4;
  options.budget = budget;
  options.batch_size = 64;
  return options;
}

TEST(L2STraining, LearningLowersTheObjectiveWithinTheBudget) {
  const Task task;
  for (const double budget : {20.0, 30.0}) {
    const L2SModel model = train_l2s(Contexts::of(task.H), task.labels, small(budget));
    ASSERT_EQ(model.history.size(), 6U);
    double best = model.history.front().objective;
    for (const ScreeningLoss& loss : model.history) {
      EXPECT_LE(loss.set_size, budget);
      best = std::min(best, loss.objective);
    }
    EXPECT_LT(best, 0.9 * model.history.front().objective) << "k-means cannot see what the labels depend on";
  }
}

TEST(L2STraining, CoordinatesThatStandOutDoNotSpoilIt) {
  Task task;
  const double even = train_l2s(Contexts::of(task.H), task.labels, small(20)).history.back().objective;
  task.H.col(3) *= 64.0F;
  const Contexts contexts = Contexts::of(task.H);
  const L2SModel model = train_l2s(contexts, task.labels, small(20));
  const auto objective = [](const ScreeningLoss& loss) { return loss.objective; };
  EXPECT_LT(std::ranges::min(model.history, {}, objective).objective, 1.1 * even);
  const auto assignment = assign_clusters(contexts, model.v, 4);
  EXPECT_LT(screening_loss(assignment, task.labels, model.sets, 3e-4).objective, 1.1 * even)
      << "the clusters are not of the contexts that were given";
}

TEST(L2STraining, KeepsTheBestRound) {
  const Task task;
  const Contexts contexts = Contexts::of(task.H);
  L2SOptions options = small(20);
  options.seed = 2;
  options.epochs = 1;
  options.learning_rate = 0.4;  // so large that later rounds spoil what earlier ones have found
  options.prior = 0.0;
  const L2SModel model = train_l2s(contexts, task.labels, options);
  const auto best = std::min_element(
      model.history.begin(), model.history.end(),
      [](const ScreeningLoss& a, const ScreeningLoss& b) { return a.objective < b.objective; });
  ASSERT_LT(best->objective, model.history.front().objective);
  ASSERT_LT(best->objective, model.history.back().objective);
  const auto assignment = assign_clusters(contexts, model.v, options.clusters);
  EXPECT_EQ(screening_loss(assignment, task.labels, model.sets, options.lambda).objective, best->objective);
}

TEST(L2STraining, TheLearningRateFallsToATenth) {
  const Task task;
  const Contexts contexts = Contexts::of(task.H);
  L2SOptions options = small(20);
  options.learning_rate = 0.2;
  options.prior = 0.0;
  options.rounds = 0;
  const L2SModel start = train_l2s(contexts, task.labels, options);
  GumbelTrainer trainer(start.v, options.clusters,
                        {options.lambda, options.gamma, options.budget, options.temperature,
                         options.batch_size, options.learning_rate},
                        options.seed + 1);
  options.rounds = 1;
  options.epochs = 3;
  for (const double rate : {1.0, 0.7, 0.4})
    trainer.epoch(contexts, task.labels, start.sets, rate, SerialExecutor());
  const L2SModel model = train_l2s(contexts, task.labels, options);
  ASSERT_LT(model.history[1].objective, model.history[0].objective);
  for (std::size_t j = 0; j < model.v.size(); ++j) EXPECT_NEAR(model.v[j], trainer.v()[j], 1e-4);
}

TEST(L2STraining, IsTheSameForASeedWhateverTheThreads) {
  const Task task;
  const L2SModel serial = train_l2s(Contexts::of(task.H), task.labels, small(20), SerialExecutor());
  const L2SModel parallel = train_l2s(Contexts::of(task.H), task.labels, small(20), ThreadPool(3));
  EXPECT_EQ(serial.v, parallel.v);
  EXPECT_TRUE(std::ranges::equal(serial.sets.values(), parallel.sets.values()));
}

TEST(L2STraining, NoRoundsLeaveKMeans) {
  const Task task;
  L2SOptions options = small(20);
  options.rounds = 0;
  EXPECT_EQ(train_l2s(Contexts::of(task.H), task.labels, options).history.size(), 1U);
}

TEST(L2STraining, TheSharpnessIsThatOfAllContexts) {
  RowMajorMatrix H = clustered_contexts(6000, 8, 4, 5);
  H.bottomRows(1800) *= 0.05F;
  const Contexts contexts = Contexts::of(H);
  Labels labels;
  labels.depth = labels.top = 1;
  labels.ids.assign(6000, 0);
  labels.weights.assign(6000, 1.0F);
  L2SOptions options = small(20);
  options.rounds = 0;
  const L2SModel model = train_l2s(contexts, labels, options);
  const Eigen::Map<const RowMajorMatrix> V(model.v.data(), 4, 8);
  const RowMajorMatrix products = H * V.transpose();
  const RowMajorMatrix below = products.colwise() - products.rowwise().maxCoeff();
  EXPECT_NEAR(below.array().exp().rowwise().sum().inverse().mean(), options.sharpness, 0.01);
}

TEST(L2STraining, MakesNoMoreClustersThanThereAreContexts) {
  const Task task;
  const RowMajorMatrix H = task.H.topRows(30);
  Labels labels = task.labels;
  labels.ids.resize(30 * labels.depth);
  labels.weights.resize(30 * labels.depth);
  L2SOptions options = small(20);
  options.clusters = 1U << 30U;
  const L2SModel model = train_l2s(Contexts::of(H), labels, options);
  EXPECT_EQ(model.clusters, 30U);
  EXPECT_EQ(model.sets.size(), 30U);
  EXPECT_EQ(model.v.size(), 30U * static_cast<std::size_t>(H.cols()));
}

TEST(L2STraining, RefusesWhatItCannotUse) {
  const Task task;
  const Contexts contexts = Contexts::of(task.H);
  EXPECT_THROW(train_l2s({}, {}, small(20)), Error);
  EXPECT_THROW(train_l2s(contexts, Labels{}, small(20)), Error);
  const auto complaint = [&](const auto& change) {
    L2SOptions options = small(20);
    change(options);
    return error_of([&] { train_l2s(contexts, task.labels, options); });
  };
  EXPECT_EQ(complaint([](L2SOptions& o) { o.clusters = 0; }), "l2s: clusters is 0; it must be at least 1");
  EXPECT_EQ(complaint([](L2SOptions& o) { o.epochs = 0; }), "l2s: epochs is 0; it must be at least 1");
  EXPECT_EQ(complaint([](L2SOptions& o) { o.batch_size = 0; }),
            "l2s: batch_size is 0; it must be at least 1");
  EXPECT_EQ(complaint([](L2SOptions& o) { o.label_count = 0; }),
            "l2s: label_count is 0; it must be at least 1");
  EXPECT_EQ(complaint([](L2SOptions& o) { o.label_depth = 4; }),
            "l2s: label_depth is 4; it must be at least label_count, 5");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const struct {
    double L2SOptions::*option;
    std::vector<double> unusable;
    std::string limit;
  } ranges[] = {
      {&L2SOptions::budget, {0.0, -1.0, nan}, "l2s: budget is 0; it must be at least 1"},
      {&L2SOptions::lambda, {0.0, 1.0, nan}, "l2s: lambda is 0; it must be above 0 and below 1"},
      {&L2SOptions::gamma, {-1.0, infinity, nan}, "l2s: gamma is -1; it must be from 0 to 1e6"},
      {&L2SOptions::temperature,
       {0.0, -1.0, infinity, nan},
       "l2s: temperature is 0; it must be from 1e-6 to 1e6"},
      {&L2SOptions::learning_rate,
       {0.0, -1.0, infinity, nan},
       "l2s: learning_rate is 0; it must be above 0 and at most 1e6"},
      {&L2SOptions::sharpness, {1.0, 0.0, 2.0, nan}, "l2s: sharpness is 1; it must be above 0 and below 1"},
      {&L2SOptions::near_miss_value,
       {-1.0, 1.5, infinity, nan},
       "l2s: near_miss_value is -1; it must be from 0 to 1"},
      {&L2SOptions::near_miss_temperature,
       {0.0, -1.0, infinity, nan},
       "l2s: near_miss_temperature is 0; it must be above 0 and at most 1e6"},
  };
  for (const auto& [option, unusable, message] : ranges) {
    const auto with = [&, option = option](double value) {
      return complaint([&](L2SOptions& options) { options.*option = value; });
    };
    EXPECT_EQ(with(unusable.front()), message);
    for (const double value : unusable) EXPECT_NE(with(value), "") << message << ' ' << value;
  }
}

}  // namespace
}  // namespace topksoftmax
