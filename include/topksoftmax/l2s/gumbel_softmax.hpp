// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/l2s/candidate_sets.hpp"
#include "topksoftmax/learning/labels.hpp"
#include "topksoftmax/learning/shuffled.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of the training of L2S's cluster vectors.
struct GumbelOptions {
  double lambda = 3e-4;          ///< λ of Eq. 6
  double gamma = 10.0;           ///< γ of Eq. 8
  double budget = 300.0;         ///< B of Eq. 8
  double temperature = 1.0;      ///< of the Gumbel softmax
  std::size_t batch_size = 512;  ///< contexts a step
  /// What a step changes a v_tj by at the most, about, relative to the root mean square of all v_tj at the
  /// beginning.
  double learning_rate = 0.05;
};

/// Stochastic gradient descent on the cluster vectors v_t with the straight-through Gumbel softmax (L2S §3,
/// Eqs. 3–5 and 8; Jang et al. 2017), in Adam's form.
///
/// With sets fixed, context i in cluster t costs
///   ℓ_it = (|y_i| − m_it) + λ(|c_t| − m_it),   m_it = |y_i ∩ c_t|, labels counted by their weights,
/// and the batch γ·max(0, L̄ − B), L̄ being the moving average of the sizes met. The forward pass draws the
/// one-hot p̄_i = one_hot(argmax_t a_it) with a_it = (v_t·h_i + g_it)/temperature, g_it ~ Gumbel(0, 1) (log
/// P(t|h) and v_t·h differ by what all t share). The loss is linear in p̄; the straight-through estimator
/// takes its derivative at p̄ for that at p_i = softmax(a_i), with a batch of n:
///   n·∂L/∂p_it = ℓ_it + γ·[L̄ > B]·|c_t|/n =: e_it,   n·∂L/∂a_it = p_it·(e_it − Σ_j p_ij e_ij),
///   ∂L/∂v_t = Σ_i ∂L/∂a_it · h_i / temperature.
/// Cost of an epoch: 2·N·r·d multiply-adds, N·r exponentials and 2·N·r logarithms.
class TOPKSOFTMAX_EXPORT GumbelTrainer {
 public:
  /// v [clusters×dim] is where the descent begins.
  GumbelTrainer(std::vector<float> v, std::size_t clusters, const GumbelOptions& options, std::uint64_t seed);

  /// One pass over the contexts in a random order, for these sets. Deterministic for a seed, for any number
  /// of threads of the executor, which lends them.
  void epoch(const Contexts& contexts, const Labels& labels, const CandidateSets& sets, double learning_rate,
             const Executor& executor = default_executor());

  /// The cluster vectors [clusters×dim].
  const std::vector<float>& v() const { return v_; }

 private:
  void step(const std::vector<float>& gradient, double rate);

  std::vector<float> v_;
  std::size_t clusters_;
  GumbelOptions options_;
  std::mt19937_64 engine_;
  double unit_;                ///< root mean square of v at the beginning
  std::vector<float> mean_;    ///< Adam's moving averages of the gradient …
  std::vector<float> square_;  ///< … and of its square
  std::size_t steps_ = 0;
  double average_size_ = -1.0;  ///< L̄, negative until the first batch
};

/// The derivatives n·∂L/∂a_it [count×clusters] of a batch, for products v_t·h_i, costs e_it and noise g_it of
/// that shape, written over the products; drawn [count] becomes the clusters of p̄.
void straight_through(std::size_t count, std::size_t clusters, const float* costs, const float* noise,
                      double temperature, float* products, std::int32_t* drawn);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// For every token, in which clusters' sets it is: rows of 0 and 1 [V' × r], for the tokens that are in any.
class Membership {
 public:
  Membership(const CandidateSets& sets, const Labels& labels)
      : clusters_(static_cast<Eigen::Index>(sets.size())) {
    TokenId largest = -1;
    for (const TokenId id : sets.values()) largest = std::max(largest, id);
    for (const TokenId id : labels.ids) largest = std::max(largest, id);
    row_of_.assign(static_cast<std::size_t>(largest) + 1, -1);
    Eigen::Index rows = 0;
    for (const TokenId id : sets.values()) {
      if (row_of_[static_cast<std::size_t>(id)] < 0) row_of_[static_cast<std::size_t>(id)] = rows++;
    }
    member_ = RowMajorMatrix::Zero(rows, clusters_);
    for (std::size_t t = 0; t < sets.size(); ++t) {
      for (const TokenId id : sets[t])
        member_(row_of_[static_cast<std::size_t>(id)], static_cast<Eigen::Index>(t)) = 1.0F;
    }
  }

  /// m_t = the weights of the labels that are in C(t), [r].
  void count(std::span<const TokenId> ids, std::span<const float> weights, float* m) const {
    Eigen::Map<Eigen::RowVectorXf> out(m, clusters_);
    out.setZero();
    for (std::size_t n = 0; n < ids.size(); ++n) {
      const Eigen::Index row = row_of_[static_cast<std::size_t>(ids[n])];
      if (row >= 0 && weights[n] > 0.0F) out += weights[n] * member_.row(row);
    }
  }

 private:
  Eigen::Index clusters_;
  std::vector<Eigen::Index> row_of_;
  RowMajorMatrix member_;
};

/// Gumbel(0, 1) noise for one context, which depends on its key alone: threads need not share a generator.
inline void draw_gumbel(std::uint64_t key, std::size_t clusters, float* out) {
  for (std::size_t t = 0; t < clusters; ++t) {
    out[t] = (static_cast<float>(split_mix(key + t, 0) >> 41) + 0.5F) * 0x1p-23F;  // never 0 or 1
  }
  Eigen::Map<Eigen::ArrayXf> noise(out, static_cast<Eigen::Index>(clusters));
  noise = -(-noise.log()).log();
}

/// Contexts of a batch, and clusters of its gradient, that one thread works on at a time.
inline constexpr std::size_t kPart = 64;

/// A batch of n contexts; the last of an epoch may have less than there is room for.
struct Batch {
  Batch(std::size_t room, std::size_t clusters, std::size_t dim)
      : H(static_cast<Eigen::Index>(room), static_cast<Eigen::Index>(dim)),
        costs(static_cast<Eigen::Index>(room), static_cast<Eigen::Index>(clusters)),
        noise(costs.rows(), costs.cols()),
        derivatives(costs.rows(), costs.cols()),
        drawn(room) {}

  /// The derivatives and the clusters drawn, by cluster vectors V, of contexts that fill(i) has put into row
  /// i of H, costs and noise.
  template <class Fill>
  void derive(const Eigen::Map<const RowMajorMatrix>& V, double temperature, const Fill& fill,
              const Executor& executor) {
    for_each_part(executor, count, kPart, [&](std::size_t begin, std::size_t part) {
      const auto top = static_cast<Eigen::Index>(begin);
      const auto rows = static_cast<Eigen::Index>(part);
      for (Eigen::Index i = top; i < top + rows; ++i) fill(i);
      derivatives.middleRows(top, rows).noalias() = H.middleRows(top, rows) * V.transpose();
      straight_through(part, static_cast<std::size_t>(V.rows()), costs.row(top).data(), noise.row(top).data(),
                       temperature, derivatives.row(top).data(), drawn.data() + begin);
    });
  }

  /// ∂L/∂v_t for every t, [r×d].
  void gradient(double temperature, float* out, const Executor& executor) const {
    const auto n = static_cast<Eigen::Index>(count);
    const auto scale = static_cast<float>(1.0 / (temperature * static_cast<double>(count)));
    Eigen::Map<RowMajorMatrix> G(out, derivatives.cols(), H.cols());
    for_each_part(executor, static_cast<std::size_t>(G.rows()), kPart,
                  [&](std::size_t begin, std::size_t part) {
                    const auto top = static_cast<Eigen::Index>(begin);
                    const auto rows = static_cast<Eigen::Index>(part);
                    G.middleRows(top, rows).noalias() =
                        scale * derivatives.topRows(n).middleCols(top, rows).transpose() * H.topRows(n);
                  });
  }

  /// The mean size of the sets of the clusters drawn.
  double mean_size(const Eigen::RowVectorXf& sizes) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(sizes[drawn[i]]);
    return sum / static_cast<double>(count);
  }

  std::size_t count = 0;            ///< n
  RowMajorMatrix H;                 ///< [n×d]
  RowMajorMatrix costs;             ///< e_it [n×r]
  RowMajorMatrix noise;             ///< g_it [n×r]
  RowMajorMatrix derivatives;       ///< n·∂L/∂a_it [n×r]
  std::vector<std::int32_t> drawn;  ///< the clusters of p̄ [n]
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline void straight_through(std::size_t count, std::size_t clusters, const float* costs, const float* noise,
                             double temperature, float* products, std::int32_t* drawn) {
  const auto n = static_cast<Eigen::Index>(count);
  const auto r = static_cast<Eigen::Index>(clusters);
  const Eigen::Map<const RowMajorMatrix> E(costs, n, r);
  const Eigen::Map<const RowMajorMatrix> g(noise, n, r);
  Eigen::Map<RowMajorMatrix> p(products, n, r);
  const auto heat = static_cast<float>(temperature);
  for (Eigen::Index i = 0; i < n; ++i) {
    p.row(i) = (p.row(i) + g.row(i)) / heat;
    Eigen::Index best = 0;
    const float max = p.row(i).maxCoeff(&best);
    drawn[i] = static_cast<std::int32_t>(best);
    p.row(i) = (p.row(i).array() - max).exp();
    p.row(i) /= p.row(i).sum();
    const float mean = p.row(i).dot(E.row(i));
    p.row(i).array() *= E.row(i).array() - mean;
  }
}

inline GumbelTrainer::GumbelTrainer(std::vector<float> v, std::size_t clusters, const GumbelOptions& options,
                                    std::uint64_t seed)
    : v_(std::move(v)),
      clusters_(clusters),
      options_(options),
      engine_(seed),
      mean_(v_.size(), 0.0F),
      square_(v_.size(), 0.0F) {
  if (options.batch_size == 0) throw Error("gumbel softmax: batch_size is 0; it must be at least 1");
  if (!(options.temperature > 0.0)) throw Error("gumbel softmax: temperature must be above 0");
  double squares = 0.0;
  for (const float x : v_) squares += static_cast<double>(x) * static_cast<double>(x);
  unit_ = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(v_.size(), 1)));
}

inline void GumbelTrainer::step(const std::vector<float>& gradient, double rate) {
  ++steps_;
  constexpr float keep_mean = 0.9F;
  constexpr float keep_square = 0.999F;
  const double correct_mean = 1.0 - std::pow(0.9, static_cast<double>(steps_));
  const double correct_square = 1.0 - std::pow(0.999, static_cast<double>(steps_));
  const auto size = static_cast<float>(rate * options_.learning_rate * unit_ / correct_mean);
  const auto scale = static_cast<float>(1.0 / correct_square);
  for (std::size_t j = 0; j < v_.size(); ++j) {
    mean_[j] = keep_mean * mean_[j] + (1.0F - keep_mean) * gradient[j];
    square_[j] = keep_square * square_[j] + (1.0F - keep_square) * gradient[j] * gradient[j];
    v_[j] -= size * mean_[j] / (std::sqrt(scale * square_[j]) + 1e-8F);
  }
}

inline void GumbelTrainer::epoch(const Contexts& contexts, const Labels& labels, const CandidateSets& sets,
                                 double rate, const Executor& executor) {
  const detail::Membership membership(sets, labels);
  const std::vector<std::size_t> order = detail::shuffled(contexts.count, engine_);
  const std::uint64_t noise_key = engine_();

  const auto d = static_cast<Eigen::Index>(contexts.dim);
  Eigen::RowVectorXf sizes(static_cast<Eigen::Index>(clusters_));
  for (std::size_t t = 0; t < clusters_; ++t)
    sizes[static_cast<Eigen::Index>(t)] = static_cast<float>(sets[t].size());
  const auto lambda = static_cast<float>(options_.lambda);

  const std::size_t room = std::min(options_.batch_size, contexts.count);
  detail::Batch batch(room, clusters_, contexts.dim);
  std::vector<float> gradient(v_.size());
  for (std::size_t first = 0; first < contexts.count; first += room) {
    batch.count = std::min(room, contexts.count - first);
    const bool over = average_size_ > options_.budget;
    const float price = over ? static_cast<float>(options_.gamma / static_cast<double>(batch.count)) : 0.0F;
    const Eigen::Map<const RowMajorMatrix> V(v_.data(), sizes.size(), d);
    batch.derive(
        V, options_.temperature,
        [&](Eigen::Index i) {
          const std::size_t context = order[first + static_cast<std::size_t>(i)];
          batch.H.row(i) = Eigen::Map<const Eigen::RowVectorXf>(contexts.row(context), d);
          const std::span<const float> weights = labels.weights_of(context);
          auto costs = batch.costs.row(i);
          membership.count(labels.of(context), weights, costs.data());
          const float all = std::accumulate(weights.begin(), weights.end(), 0.0F);
          costs = all - (1.0F + lambda) * costs.array() + (lambda + price) * sizes.array();
          detail::draw_gumbel(detail::split_mix(noise_key + context, 0), clusters_,
                              batch.noise.row(i).data());
        },
        executor);
    batch.gradient(options_.temperature, gradient.data(), executor);
    const double size = batch.mean_size(sizes);
    average_size_ = average_size_ < 0.0 ? size : 0.9 * average_size_ + 0.1 * size;
    step(gradient, rate);
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE
