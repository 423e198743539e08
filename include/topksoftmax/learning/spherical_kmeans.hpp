// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/learning/chunks.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of spherical k-means.
struct SphericalKMeansOptions {
  std::size_t clusters = 100;   ///< r
  std::size_t iterations = 20;  ///< at most; it ends when no context changes its cluster
  std::uint64_t seed = 1;       ///< of the contexts that the clusters begin at
  StepProgress progress = {};
};

/// Spherical k-means: unit vectors v_t [r×d] that make Σ_i max_t v_t·h_i/‖h_i‖ large (locally the largest).
/// Begins at different contexts far from each other (k-means++); a cluster that loses all its contexts begins
/// anew at the context that fits worst. Deterministic for a seed, for any number of threads of the
/// executor, which lends them. Cost: (iterations·N + max(4,096, 20·r))·r·d multiply-adds. Throws Error
/// without contexts or clusters.
std::vector<float> spherical_kmeans(const Contexts& contexts, const SphericalKMeansOptions& options,
                                    const Executor& executor = default_executor());

/// argmax_t v_t·h_i of every context [N], v [clusters×dim] row-major; of equals the lower t. Cost:
/// N·clusters·d multiply-adds, on the executor's threads.
std::vector<std::int32_t> assign_clusters(const Contexts& contexts, const std::vector<float>& v,
                                          std::size_t clusters,
                                          const Executor& executor = default_executor());

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Contexts, scaled to length 1 (zeros stay zero) as they are needed.
inline RowMajorMatrix directions(const Contexts& contexts, std::size_t first, std::size_t count) {
  RowMajorMatrix out = chunk_of(contexts, first, count);
  for (Eigen::Index i = 0; i < out.rows(); ++i) {
    const float length = out.row(i).norm();
    if (length > 0.0F) out.row(i) /= length;
  }
  return out;
}

struct Assignment {
  std::vector<std::int32_t> cluster;
  std::vector<float> similarity;
};

/// The best cluster of every context, by the products with v.
template <class RowsOf>
Assignment assign(const Contexts& contexts, const RowMajorMatrix& v, const RowsOf& rows_of,
                  const Executor& executor) {
  Assignment out;
  out.cluster.resize(contexts.count);
  out.similarity.resize(contexts.count);
  for_each_chunk(executor, contexts.count, [&](std::size_t first, std::size_t count) {
    const RowMajorMatrix products = rows_of(contexts, first, count) * v.transpose();
    for (Eigen::Index i = 0; i < products.rows(); ++i) {
      Eigen::Index best = 0;
      out.similarity[first + static_cast<std::size_t>(i)] = products.row(i).maxCoeff(&best);
      out.cluster[first + static_cast<std::size_t>(i)] = static_cast<std::int32_t>(best);
    }
  });
  return out;
}

/// k-means++ on a sample: each next cluster begins at a context drawn by its distance to those there are.
inline RowMajorMatrix initial_clusters(const Contexts& contexts, std::size_t clusters,
                                       std::mt19937_64& engine, const Executor& executor) {
  const RowMajorMatrix chosen = evenly_spaced(contexts, std::max<std::size_t>(4096, 20 * clusters));
  const auto sampled = static_cast<std::size_t>(chosen.rows());
  const RowMajorMatrix sample = directions(Contexts::of(chosen), 0, sampled);
  RowMajorMatrix v(static_cast<Eigen::Index>(clusters), sample.cols());
  Eigen::VectorXf distance = Eigen::VectorXf::Constant(sample.rows(), std::numeric_limits<float>::max());
  Eigen::Index next = static_cast<Eigen::Index>(engine() % sampled);
  for (Eigen::Index t = 0; t < v.rows(); ++t) {
    v.row(t) = sample.row(next);
    for_each_chunk(executor, sampled, [&](std::size_t first, std::size_t count) {
      const auto at = static_cast<Eigen::Index>(first);
      const auto rows = sample.middleRows(at, static_cast<Eigen::Index>(count));
      auto some = distance.segment(at, rows.rows());
      some = some.cwiseMin((1.0F - (rows * v.row(t).transpose()).array()).cwiseMax(0.0F).matrix());
    });
    // The generator's bits are used as they are: distributions differ between standard libraries.
    const double total = distance.cast<double>().sum();
    double left = total * unit_interval(engine());
    next = 0;
    while (next + 1 < distance.size() && left >= static_cast<double>(distance[next])) {
      left -= static_cast<double>(distance[next++]);
    }
  }
  return v;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline std::vector<float> spherical_kmeans(const Contexts& contexts, const SphericalKMeansOptions& options,
                                           const Executor& executor) {
  if (contexts.count == 0) throw Error("spherical k-means: there are no contexts; at least 1 is needed");
  if (options.clusters == 0) throw Error("spherical k-means: clusters is 0; it must be at least 1");
  std::mt19937_64 engine(options.seed);
  RowMajorMatrix v = detail::initial_clusters(contexts, options.clusters, engine, executor);
  std::vector<std::int32_t> previous;
  for (std::size_t iteration = 0; iteration < options.iterations; ++iteration) {
    detail::Assignment now = detail::assign(contexts, v, detail::directions, executor);
    if (now.cluster == previous) break;
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> sums =
        Eigen::MatrixXd::Zero(v.rows(), v.cols());
    std::vector<std::size_t> members(options.clusters, 0);
    for (std::size_t i = 0; i < contexts.count; ++i) {
      const Eigen::Map<const Eigen::VectorXf> h(contexts.row(i), v.cols());
      const float length = h.norm();
      if (length > 0.0F) sums.row(now.cluster[i]) += (h / length).cast<double>().transpose();
      ++members[static_cast<std::size_t>(now.cluster[i])];
    }
    for (Eigen::Index t = 0; t < v.rows(); ++t) {
      const double length = sums.row(t).norm();
      if (members[static_cast<std::size_t>(t)] > 0 && length > 0.0) {
        v.row(t) = (sums.row(t) / length).cast<float>();
      } else {
        const auto worst = std::min_element(now.similarity.begin(), now.similarity.end());
        v.row(t) = detail::directions(contexts, static_cast<std::size_t>(worst - now.similarity.begin()), 1);
        *worst = std::numeric_limits<float>::max();  // the next empty cluster takes another
      }
    }
    previous = std::move(now.cluster);
    if (options.progress) {
      options.progress(static_cast<double>(iteration + 1) / static_cast<double>(options.iterations));
    }
  }
  return {v.data(), v.data() + v.size()};
}

inline std::vector<std::int32_t> assign_clusters(const Contexts& contexts, const std::vector<float>& v,
                                                 std::size_t clusters, const Executor& executor) {
  const RowMajorMatrix matrix = Eigen::Map<const RowMajorMatrix>(
      v.data(), static_cast<Eigen::Index>(clusters), static_cast<Eigen::Index>(contexts.dim));
  return detail::assign(contexts, matrix, detail::chunk_of, executor).cluster;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
