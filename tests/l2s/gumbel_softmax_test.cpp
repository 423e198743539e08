// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/gumbel_softmax.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "support/layers.hpp"

namespace topksoftmax {
namespace {

using testing::random_matrix;

/// The surrogate whose derivative is taken: Σ_i Σ_t softmax((v_t·h_i + g_it)/temperature)_t · e_it.
double soft_loss(const RowMajorMatrix& H, const Eigen::MatrixXd& V, const RowMajorMatrix& costs,
                 const RowMajorMatrix& noise, double temperature) {
  const Eigen::MatrixXd a = (H.cast<double>() * V.transpose() + noise.cast<double>()) / temperature;
  const Eigen::ArrayXXd p = a.array().exp();
  return ((p * costs.cast<double>().array()).rowwise().sum() / p.rowwise().sum()).sum();
}

/// Its derivatives by every v_tj, from differences.
Eigen::MatrixXd soft_gradient(const RowMajorMatrix& H, const RowMajorMatrix& V, const RowMajorMatrix& costs,
                              const RowMajorMatrix& noise, double temperature) {
  constexpr double step = 1e-5;
  Eigen::MatrixXd gradient(V.rows(), V.cols());
  for (Eigen::Index t = 0; t < V.rows(); ++t) {
    for (Eigen::Index j = 0; j < V.cols(); ++j) {
      Eigen::MatrixXd up = V.cast<double>();
      Eigen::MatrixXd down = up;
      up(t, j) += step;
      down(t, j) -= step;
      gradient(t, j) =
          (soft_loss(H, up, costs, noise, temperature) - soft_loss(H, down, costs, noise, temperature)) /
          (2.0 * step);
    }
  }
  return gradient;
}

constexpr Eigen::Index kClusters = 5;
constexpr Eigen::Index kDim = 4;

/// So many contexts in the face of some clusters.
struct SoftProblem {
  explicit SoftProblem(Eigen::Index n)
      : H(random_matrix(n, kDim, 1)),
        costs(random_matrix(n, kClusters, 3)),
        noise(random_matrix(n, kClusters, 4)) {}

  Eigen::MatrixXd gradient(double temperature) const {
    return soft_gradient(H, V, costs, noise, temperature);
  }

  RowMajorMatrix H;
  RowMajorMatrix V = random_matrix(kClusters, kDim, 2);
  RowMajorMatrix costs;
  RowMajorMatrix noise;
};

TEST(StraightThrough, DerivativesAreThoseOfTheSoftLoss) {
  constexpr Eigen::Index n = 6;
  const SoftProblem of(n);
  for (const double temperature : {1.0, 0.5}) {
    RowMajorMatrix derivatives = of.H * of.V.transpose();
    std::vector<std::int32_t> drawn(n);
    straight_through(n, kClusters, of.costs.data(), of.noise.data(), temperature, derivatives.data(),
                     drawn.data());
    const Eigen::MatrixXd gradient =
        (derivatives.transpose() * of.H / static_cast<float>(temperature)).cast<double>();
    EXPECT_TRUE(gradient.isApprox(of.gradient(temperature), 1e-4));
    const RowMajorMatrix noisy = of.H * of.V.transpose() + of.noise;
    for (Eigen::Index i = 0; i < n; ++i) {
      Eigen::Index best = 0;
      noisy.row(i).maxCoeff(&best);
      EXPECT_EQ(drawn[static_cast<std::size_t>(i)], best) << "the forward pass is one-hot";
    }
  }
}

TEST(StraightThrough, ABatchsGradientIsThatOfTheMeanSoftLoss) {
  constexpr Eigen::Index n = 70;  // more than one part
  const SoftProblem of(n);
  detail::Batch batch(n + 3, kClusters, kDim);
  batch.count = n;
  const auto fill = [&](Eigen::Index i) {
    batch.H.row(i) = of.H.row(i);
    batch.costs.row(i) = of.costs.row(i);
    batch.noise.row(i) = of.noise.row(i);
  };
  for (const double temperature : {1.0, 0.5}) {
    batch.derive(Eigen::Map<const RowMajorMatrix>(of.V.data(), kClusters, kDim), temperature, fill,
                 SerialExecutor());
    RowMajorMatrix gradient(kClusters, kDim);
    batch.gradient(temperature, gradient.data(), SerialExecutor());
    const Eigen::MatrixXd expected = of.gradient(temperature) / static_cast<double>(n);
    EXPECT_TRUE(gradient.cast<double>().isApprox(expected, 1e-4));
  }
}

std::uint64_t split_mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// The noise of a cluster in a context.
double gumbel(std::uint64_t key, std::size_t context, std::size_t cluster) {
  const std::uint64_t bits = split_mix(split_mix(key + context) + cluster) >> 41;
  return -std::log(-std::log((static_cast<double>(bits) + 0.5) * 0x1p-23));
}

/// What GumbelTrainer does, after its formulas, in float64 and with one context after the other.
class ReferenceTrainer {
 public:
  ReferenceTrainer(const RowMajorMatrix& v, const GumbelOptions& options, std::uint64_t seed)
      : v_(v.cast<double>()),
        options_(options),
        engine_(seed),
        mean_(Eigen::MatrixXd::Zero(v.rows(), v.cols())),
        square_(mean_),
        unit_(std::sqrt(v_.squaredNorm() / static_cast<double>(v_.size()))) {}

  void epoch(const RowMajorMatrix& H, const Labels& labels, const CandidateSets& sets, double rate) {
    std::vector<std::size_t> order(static_cast<std::size_t>(H.rows()));
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[engine_() % i]);
    const std::uint64_t key = engine_();
    for (std::size_t first = 0; first < order.size(); first += options_.batch_size) {
      const std::size_t end = std::min(first + options_.batch_size, order.size());
      step(H, labels, sets,
           {order.begin() + static_cast<std::ptrdiff_t>(first),
            order.begin() + static_cast<std::ptrdiff_t>(end)},
           key, rate);
    }
  }

  const Eigen::MatrixXd& v() const { return v_; }
  /// Batches for which the moving average was above the budget.
  std::size_t over() const { return over_; }
  /// … and for which the mean of the batch before was not on the same side of it.
  std::size_t crossed() const { return crossed_; }

 private:
  void step(const RowMajorMatrix& H, const Labels& labels, const CandidateSets& sets,
            const std::vector<std::size_t>& batch, std::uint64_t key, double rate) {
    const auto n = static_cast<double>(batch.size());
    const bool over = average_ > options_.budget;
    over_ += over ? 1U : 0U;
    crossed_ += over != (last_ > options_.budget) ? 1U : 0U;
    Eigen::MatrixXd gradient = Eigen::MatrixXd::Zero(v_.rows(), v_.cols());
    last_ = 0.0;
    for (const std::size_t context : batch) {
      const Eigen::VectorXd h = H.row(static_cast<Eigen::Index>(context)).cast<double>();
      Eigen::VectorXd e(v_.rows());
      Eigen::VectorXd a(v_.rows());
      for (Eigen::Index t = 0; t < v_.rows(); ++t) {
        const auto set = sets[static_cast<std::size_t>(t)];
        const auto size = static_cast<double>(set.size());
        double missed = 0.0;
        double met = 0.0;
        for (std::size_t i = 0; i < labels.depth; ++i) {
          const bool in_set = std::count(set.begin(), set.end(), labels.of(context)[i]) != 0;
          (in_set ? met : missed) += static_cast<double>(labels.weights_of(context)[i]);
        }
        e[t] = missed + options_.lambda * (size - met) + (over ? options_.gamma * size / n : 0.0);
        a[t] = (v_.row(t).dot(h) + gumbel(key, context, static_cast<std::size_t>(t))) / options_.temperature;
      }
      Eigen::Index drawn = 0;
      const Eigen::ArrayXd exps = (a.array() - a.maxCoeff(&drawn)).exp();
      const Eigen::ArrayXd p = exps / exps.sum();
      const Eigen::VectorXd slopes = p * (e.array() - (p * e.array()).sum());
      gradient += slopes * h.transpose() / (options_.temperature * n);
      last_ += static_cast<double>(sets[static_cast<std::size_t>(drawn)].size()) / n;
    }
    average_ = steps_ == 0.0 ? last_ : 0.9 * average_ + 0.1 * last_;
    steps_ += 1.0;
    mean_ = 0.9 * mean_ + 0.1 * gradient;
    square_ = 0.999 * square_ + 0.001 * gradient.cwiseAbs2();
    const Eigen::ArrayXXd root = (square_.array() / (1.0 - std::pow(0.999, steps_))).sqrt();
    const double length = rate * options_.learning_rate * unit_ / (1.0 - std::pow(0.9, steps_));
    v_ -= (length * mean_.array() / (root + 1e-8)).matrix();
  }

  Eigen::MatrixXd v_;
  GumbelOptions options_;
  std::mt19937_64 engine_;
  Eigen::MatrixXd mean_;
  Eigen::MatrixXd square_;
  double unit_;
  double steps_ = 0.0;
  double average_ = -1.0;
  double last_ = -1.0;
  std::size_t over_ = 0;
  std::size_t crossed_ = 0;
};

/// Sets of 2, 5, 9 and 14 of 20 tokens.
CandidateSets sets_of_some_sizes() {
  std::vector<std::vector<TokenId>> sets;
  for (const TokenId size : {2, 5, 9, 14}) {
    std::vector<TokenId>& ids = sets.emplace_back();
    for (TokenId i = 0; i < size; ++i) ids.push_back(20 - size + i);
  }
  return CandidateSets::copy(sets);
}

TEST(GumbelTrainer, StepsAreThoseOfItsFormulas) {
  constexpr Eigen::Index contexts = 40;
  constexpr Eigen::Index clusters = 4;
  constexpr Eigen::Index dim = 5;
  const RowMajorMatrix H = random_matrix(contexts, dim, 1);
  const RowMajorMatrix v = random_matrix(clusters, dim, 2);
  const CandidateSets sets = sets_of_some_sizes();
  Labels labels;
  labels.depth = 3;
  labels.top = 2;
  for (TokenId i = 0; i < contexts; ++i) {
    for (const TokenId id : {i * 7 % 20, (i * 7 + 3) % 20, (i * 7 + 9) % 20}) labels.ids.push_back(id);
    for (const float weight : {1.0F, 1.0F, 0.4F}) labels.weights.push_back(weight);
  }
  for (const std::size_t batch_size : {std::size_t{40}, std::size_t{16}}) {
    const GumbelOptions options = {.lambda = 0.05,
                                   .gamma = 10.0,
                                   .budget = 6.3,
                                   .temperature = 0.8,
                                   .batch_size = batch_size,
                                   .learning_rate = 0.05};
    GumbelTrainer trainer({v.data(), v.data() + v.size()}, clusters, options, 7);
    ReferenceTrainer reference(v, options, 7);
    for (const double rate : {1.0, 1.0, 0.8, 0.8, 0.5, 0.5, 0.5, 0.5}) {
      trainer.epoch(Contexts::of(H), labels, sets, rate);
      reference.epoch(H, labels, sets, rate);
      const Eigen::Map<const RowMajorMatrix> learned(trainer.v().data(), clusters, dim);
      EXPECT_LT((learned.cast<double>() - reference.v()).cwiseAbs().maxCoeff(), 2e-4) << batch_size;
    }
    EXPECT_GT(reference.over(), 0U) << "the budget was too large to be felt";
    EXPECT_GT(reference.crossed(), 0U) << "the average was as the last batch";
  }
}

}  // namespace
}  // namespace topksoftmax
