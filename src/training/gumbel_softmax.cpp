// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/training/gumbel_softmax.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "parallel.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using Eigen::Index;

/// For every token, in which clusters' sets it is: rows of 0 and 1 [V' × r], for the tokens that are in any.
class Membership {
 public:
  Membership(const CandidateSets& sets, const Labels& labels)
      : clusters_(static_cast<Index>(sets.clusters())) {
    TokenId largest = -1;
    for (const TokenId id : sets.ids) largest = std::max(largest, id);
    for (const TokenId id : labels.ids) largest = std::max(largest, id);
    row_of_.assign(static_cast<std::size_t>(largest) + 1, -1);
    Index rows = 0;
    for (const TokenId id : sets.ids) {
      if (row_of_[static_cast<std::size_t>(id)] < 0) row_of_[static_cast<std::size_t>(id)] = rows++;
    }
    member_ = RowMajorMatrix::Zero(rows, clusters_);
    for (std::size_t t = 0; t < sets.clusters(); ++t) {
      for (const TokenId id : sets.of(t))
        member_(row_of_[static_cast<std::size_t>(id)], static_cast<Index>(t)) = 1.0F;
    }
  }

  /// m_t = the weights of the labels that are in C(t), [r].
  void count(std::span<const TokenId> ids, std::span<const float> weights, float* m) const {
    Eigen::Map<Eigen::RowVectorXf> out(m, clusters_);
    out.setZero();
    for (std::size_t n = 0; n < ids.size(); ++n) {
      const Index row = row_of_[static_cast<std::size_t>(ids[n])];
      if (row >= 0 && weights[n] > 0.0F) out += weights[n] * member_.row(row);
    }
  }

 private:
  Index clusters_;
  std::vector<Index> row_of_;
  RowMajorMatrix member_;
};

/// Random bits that depend on where they are used alone, so that threads need not share a generator
/// (SplitMix64).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Gumbel(0, 1) noise for one context.
void draw_gumbel(std::uint64_t key, std::size_t clusters, float* out) {
  for (std::size_t t = 0; t < clusters; ++t) {
    out[t] = (static_cast<float>(mix(key + t) >> 41) + 0.5F) * 0x1p-23F;  // never 0 or 1
  }
  Eigen::Map<Eigen::ArrayXf> noise(out, static_cast<Index>(clusters));
  noise = -(-noise.log()).log();
}

/// Contexts of a batch, and clusters of its gradient, that one thread works on at a time.
constexpr std::size_t kPart = 64;

/// A batch of n contexts; the last of an epoch may have less than there is room for.
struct Batch {
  Batch(std::size_t room, std::size_t clusters, std::size_t dim)
      : H(static_cast<Index>(room), static_cast<Index>(dim)),
        costs(static_cast<Index>(room), static_cast<Index>(clusters)),
        noise(costs.rows(), costs.cols()),
        derivatives(costs.rows(), costs.cols()),
        drawn(room) {}

  /// The derivatives and the clusters drawn, by cluster vectors V, of contexts that fill(i) has put into row
  /// i of H, costs and noise.
  template <class Fill>
  void derive(const Eigen::Map<const RowMajorMatrix>& V, double temperature, const Fill& fill) {
    for_each_part(count, kPart, [&](std::size_t begin, std::size_t part) {
      const auto top = static_cast<Index>(begin);
      const auto rows = static_cast<Index>(part);
      for (Index i = top; i < top + rows; ++i) fill(i);
      derivatives.middleRows(top, rows).noalias() = H.middleRows(top, rows) * V.transpose();
      straight_through(part, static_cast<std::size_t>(V.rows()), costs.row(top).data(), noise.row(top).data(),
                       temperature, derivatives.row(top).data(), drawn.data() + begin);
    });
  }

  /// ∂L/∂v_t for every t, [r×d].
  void gradient(double temperature, float* out) const {
    const auto n = static_cast<Index>(count);
    const auto scale = static_cast<float>(1.0 / (temperature * static_cast<double>(count)));
    Eigen::Map<RowMajorMatrix> G(out, derivatives.cols(), H.cols());
    for_each_part(static_cast<std::size_t>(G.rows()), kPart, [&](std::size_t begin, std::size_t part) {
      const auto top = static_cast<Index>(begin);
      const auto rows = static_cast<Index>(part);
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

}  // namespace

void straight_through(std::size_t count, std::size_t clusters, const float* costs, const float* noise,
                      double temperature, float* products, std::int32_t* drawn) {
  const auto n = static_cast<Index>(count);
  const auto r = static_cast<Index>(clusters);
  const Eigen::Map<const RowMajorMatrix> E(costs, n, r);
  const Eigen::Map<const RowMajorMatrix> g(noise, n, r);
  Eigen::Map<RowMajorMatrix> p(products, n, r);
  const auto heat = static_cast<float>(temperature);
  for (Index i = 0; i < n; ++i) {
    p.row(i) = (p.row(i) + g.row(i)) / heat;
    Index best = 0;
    const float max = p.row(i).maxCoeff(&best);
    drawn[i] = static_cast<std::int32_t>(best);
    p.row(i) = (p.row(i).array() - max).exp();
    p.row(i) /= p.row(i).sum();
    const float mean = p.row(i).dot(E.row(i));
    p.row(i).array() *= E.row(i).array() - mean;
  }
}

GumbelTrainer::GumbelTrainer(std::vector<float> v, std::size_t clusters, const GumbelOptions& options,
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

void GumbelTrainer::step(const std::vector<float>& gradient, double rate) {
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

void GumbelTrainer::epoch(const Contexts& contexts, const Labels& labels, const CandidateSets& sets,
                          double rate) {
  const Membership membership(sets, labels);
  std::vector<std::size_t> order(contexts.count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[engine_() % i]);
  const std::uint64_t noise_key = engine_();

  const auto d = static_cast<Index>(contexts.dim);
  Eigen::RowVectorXf sizes(static_cast<Index>(clusters_));
  for (std::size_t t = 0; t < clusters_; ++t)
    sizes[static_cast<Index>(t)] = static_cast<float>(sets.of(t).size());
  const auto lambda = static_cast<float>(options_.lambda);

  const std::size_t room = std::min(options_.batch_size, contexts.count);
  Batch batch(room, clusters_, contexts.dim);
  std::vector<float> gradient(v_.size());
  for (std::size_t first = 0; first < contexts.count; first += room) {
    batch.count = std::min(room, contexts.count - first);
    const bool over = average_size_ > options_.budget;
    const float price = over ? static_cast<float>(options_.gamma / static_cast<double>(batch.count)) : 0.0F;
    const Eigen::Map<const RowMajorMatrix> V(v_.data(), sizes.size(), d);
    batch.derive(V, options_.temperature, [&](Index i) {
      const std::size_t context = order[first + static_cast<std::size_t>(i)];
      batch.H.row(i) = Eigen::Map<const Eigen::RowVectorXf>(contexts.row(context), d);
      const std::span<const float> weights = labels.weights_of(context);
      auto costs = batch.costs.row(i);
      membership.count(labels.of(context), weights, costs.data());
      const float all = std::accumulate(weights.begin(), weights.end(), 0.0F);
      costs = all - (1.0F + lambda) * costs.array() + (lambda + price) * sizes.array();
      draw_gumbel(mix(noise_key + context), clusters_, batch.noise.row(i).data());
    });
    batch.gradient(options_.temperature, gradient.data());
    const double size = batch.mean_size(sizes);
    average_size_ = average_size_ < 0.0 ? size : 0.9 * average_size_ + 0.1 * size;
    step(gradient, rate);
  }
}

}  // namespace topksoftmax
