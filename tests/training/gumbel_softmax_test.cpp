// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/training/gumbel_softmax.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "support/layers.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/training/knapsack.hpp"
#include "topksoftmax/training/l2s_training.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_matrix;

TEST(StraightThrough, DerivativesAreThoseOfTheSoftLoss) {
  // The surrogate whose derivative is taken: Σ_i Σ_t softmax((v_t·h_i + g_it)/temperature)_t · e_it.
  constexpr Eigen::Index n = 6;
  constexpr Eigen::Index r = 5;
  constexpr Eigen::Index d = 4;
  const RowMajorMatrix H = random_matrix(n, d, 1);
  const RowMajorMatrix costs = random_matrix(n, r, 3);
  const RowMajorMatrix noise = random_matrix(n, r, 4);
  for (const double temperature : {1.0, 0.5}) {
    RowMajorMatrix V = random_matrix(r, d, 2);
    const auto surrogate = [&](const RowMajorMatrix& at) {
      double loss = 0.0;
      for (Eigen::Index i = 0; i < n; ++i) {
        double sum = 0.0;
        double weighted = 0.0;
        for (Eigen::Index t = 0; t < r; ++t) {
          const double a =
              (H.row(i).cast<double>().dot(at.row(t).cast<double>()) + static_cast<double>(noise(i, t))) /
              temperature;
          sum += std::exp(a);
          weighted += std::exp(a) * static_cast<double>(costs(i, t));
        }
        loss += weighted / sum;
      }
      return loss;
    };
    RowMajorMatrix derivatives = H * V.transpose();
    std::vector<std::int32_t> drawn(n);
    straight_through(n, r, costs.data(), noise.data(), temperature, derivatives.data(), drawn.data());
    const RowMajorMatrix gradient = derivatives.transpose() * H / static_cast<float>(temperature);
    for (Eigen::Index t = 0; t < r; ++t) {
      for (Eigen::Index j = 0; j < d; ++j) {
        constexpr float step = 1e-2F;
        RowMajorMatrix up = V;
        RowMajorMatrix down = V;
        up(t, j) += step;
        down(t, j) -= step;
        const double numeric = (surrogate(up) - surrogate(down)) / (2.0 * static_cast<double>(step));
        EXPECT_NEAR(gradient(t, j), numeric, 2e-3);
      }
    }
    const RowMajorMatrix noisy = H * V.transpose() + noise;
    for (Eigen::Index i = 0; i < n; ++i) {
      Eigen::Index best = 0;
      noisy.row(i).maxCoeff(&best);
      EXPECT_EQ(drawn[static_cast<std::size_t>(i)], best) << "the forward pass is one-hot";
    }
  }
}

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
        labels.ids.push_back(static_cast<TokenId>((side ? 100 : 0) + (static_cast<int>(i) * 7 + n * 11) % 30));
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

TEST(L2STraining, IsTheSameForASeedWhateverTheThreads) {
  const Task task;
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const L2SModel serial = train_l2s(Contexts::of(task.H), task.labels, small(20));
  omp_set_num_threads(3);
  const L2SModel parallel = train_l2s(Contexts::of(task.H), task.labels, small(20));
  omp_set_num_threads(threads);
  EXPECT_EQ(serial.v, parallel.v);
  EXPECT_EQ(serial.sets.ids, parallel.sets.ids);
}

TEST(L2STraining, NoRoundsLeaveKMeans) {
  const Task task;
  L2SOptions options = small(20);
  options.rounds = 0;
  EXPECT_EQ(train_l2s(Contexts::of(task.H), task.labels, options).history.size(), 1U);
}

TEST(L2STraining, RefusesWhatItCannotUse) {
  const Task task;
  const Contexts contexts = Contexts::of(task.H);
  EXPECT_THROW(train_l2s({}, {}, small(20)), Error);
  EXPECT_THROW(train_l2s(contexts, Labels{}, small(20)), Error);
  EXPECT_THROW(train_l2s(contexts, task.labels, small(0.0)), Error);
  L2SOptions options = small(20);
  options.clusters = 0;
  EXPECT_THROW(train_l2s(contexts, task.labels, options), Error);
  options = small(20);
  options.lambda = 1.0;
  EXPECT_THROW(train_l2s(contexts, task.labels, options), Error);
  options = small(20);
  options.batch_size = 0;
  EXPECT_THROW(train_l2s(contexts, task.labels, options), Error);
}

}  // namespace
}  // namespace topksoftmax
