// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/learning/chunks.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/spherical_kmeans.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The clusters that a row likes best, of those with room.
struct ClusterChoice {
  static constexpr std::size_t kMost = 16;

  std::size_t row = 0;
  std::size_t count = 0;
  std::array<std::int32_t, kMost> clusters{};  ///< `count` of them, the best first, of equals the lower ones
  std::array<float, kMost> products{};

  /// Puts a cluster, above all that were offered before, where it belongs.
  void offer(std::int32_t cluster, float product) {
    if (count == kMost && !(product > products.back())) return;
    if (count < kMost) ++count;
    std::size_t place = count - 1;
    for (; place > 0 && product > products[place - 1]; --place) {
      products[place] = products[place - 1];
      clusters[place] = clusters[place - 1];
    }
    products[place] = product;
    clusters[place] = cluster;
  }

  /// What the row loses with its first choice.
  float margin() const {
    return count > 1 ? products[0] - products[1] : std::numeric_limits<float>::infinity();
  }
};

/// What each of some rows would choose by its direction, of the clusters v [C×d] that have room. Cost:
/// which.size()·C·d multiply-adds, on the threads of the executor.
inline std::vector<ClusterChoice> choices_of(const Contexts& rows, std::span<const std::size_t> which,
                                             const RowMajorMatrix& v, const std::vector<bool>& has_room,
                                             const Executor& executor) {
  kernels::Rows centers;
  centers.data = v.data();
  centers.count = static_cast<std::size_t>(v.rows());
  centers.dim = centers.stride = rows.dim;
  std::vector<ClusterChoice> choices(which.size());
  for_each_chunk(executor, which.size(), [&](std::size_t first, std::size_t count) {
    RowMajorMatrix some(static_cast<Eigen::Index>(count), v.cols());
    for (std::size_t i = 0; i < count; ++i)
      some.row(static_cast<Eigen::Index>(i)) = directions(rows, which[first + i], 1);
    RowMajorMatrix products(some.rows(), v.rows());
    kernels::scan_batch(centers, some.data(), rows.dim, count, products.data());
    for (std::size_t i = 0; i < count; ++i) {
      ClusterChoice& choice = choices[first + i];
      choice.row = which[first + i];
      for (Eigen::Index t = 0; t < v.rows(); ++t) {
        if (!has_room[static_cast<std::size_t>(t)]) continue;
        choice.offer(static_cast<std::int32_t>(t), products(static_cast<Eigen::Index>(i), t));
      }
    }
  });
  return choices;
}

/// A cluster for every row, `capacity` rows in each at most, capacity·C ≥ rows: those that lose most with
/// their first choice come first, of equals the lower row, and each takes the best that still has room. A row
/// that finds none among its 16 best waits for the next round, by which these are full. Memory: 144 bytes a
/// row.
inline std::vector<std::int32_t> balanced_assignment(const Contexts& rows, const RowMajorMatrix& v,
                                                     std::size_t capacity, const Executor& executor) {
  std::vector<std::int32_t> cluster(rows.count);
  std::vector<std::size_t> held(static_cast<std::size_t>(v.rows()), 0);
  std::vector<bool> has_room(held.size(), true);
  std::vector<std::size_t> waiting(rows.count);
  std::iota(waiting.begin(), waiting.end(), std::size_t{0});
  while (!waiting.empty()) {
    std::vector<ClusterChoice> choices = choices_of(rows, waiting, v, has_room, executor);
    std::stable_sort(choices.begin(), choices.end(),
                     [](const ClusterChoice& a, const ClusterChoice& b) { return a.margin() > b.margin(); });
    waiting.clear();
    for (const ClusterChoice& choice : choices) {
      const auto* const end = choice.clusters.data() + choice.count;
      const auto* const found = std::find_if(
          choice.clusters.data(), end, [&](std::int32_t t) { return has_room[static_cast<std::size_t>(t)]; });
      if (found == end) {
        waiting.push_back(choice.row);
        continue;
      }
      const auto t = static_cast<std::size_t>(*found);
      cluster[choice.row] = *found;
      has_room[t] = ++held[t] < capacity;
    }
    std::sort(waiting.begin(), waiting.end());
  }
  return cluster;
}

/// Σ weight(row)·row over the rows of each cluster [C×d], in float64.
template <class Weight>
Eigen::MatrixXd cluster_sums(const Contexts& rows, const std::vector<std::int32_t>& cluster,
                             std::size_t clusters, const Weight& weight) {
  const auto dim = static_cast<Eigen::Index>(rows.dim);
  Eigen::MatrixXd sums = Eigen::MatrixXd::Zero(dim, static_cast<Eigen::Index>(clusters));
  for (std::size_t i = 0; i < rows.count; ++i) {
    const Eigen::VectorXd row = Eigen::Map<const Eigen::VectorXf>(rows.row(i), dim).cast<double>();
    sums.col(cluster[i]) += weight(row) * row;
  }
  return sums.transpose();
}

/// A cluster for every row, by spherical k-means in which none holds more than `capacity` of them,
/// capacity·clusters ≥ rows. Begins with the clusters of spherical_kmeans(), and ends when no row changes its
/// cluster, or after so many iterations. Deterministic for a seed, for any number of threads of the executor,
/// which lends them. Tells options.progress of both as one. Cost: twice iterations·rows·clusters·d
/// multiply-adds, and more where many rows wait (see balanced_assignment).
inline std::vector<std::int32_t> balanced_kmeans(const Contexts& rows, const SphericalKMeansOptions& options,
                                                 std::size_t capacity, const Executor& executor) {
  constexpr double kStarted = 0.4;
  const StepProgress balancing = share_of(options.progress, kStarted, 1.0);
  SphericalKMeansOptions starting = options;
  starting.progress = share_of(options.progress, 0.0, kStarted);
  const std::vector<float> start = spherical_kmeans(rows, starting, executor);
  RowMajorMatrix v = Eigen::Map<const RowMajorMatrix>(
      start.data(), static_cast<Eigen::Index>(options.clusters), static_cast<Eigen::Index>(rows.dim));
  std::vector<std::int32_t> cluster = balanced_assignment(rows, v, capacity, executor);
  for (std::size_t iteration = 0; iteration < options.iterations; ++iteration) {
    const Eigen::MatrixXd sums =
        cluster_sums(rows, cluster, options.clusters, [](const Eigen::VectorXd& row) {
          const double length = row.norm();
          return length > 0.0 ? 1.0 / length : 0.0;
        });
    for (Eigen::Index t = 0; t < v.rows(); ++t) {
      const double length = sums.row(t).norm();
      if (length > 0.0) v.row(t) = (sums.row(t) / length).cast<float>();
    }
    std::vector<std::int32_t> next = balanced_assignment(rows, v, capacity, executor);
    if (next == cluster) break;
    cluster = std::move(next);
    if (balancing) balancing(static_cast<double>(iteration + 1) / static_cast<double>(options.iterations));
  }
  if (balancing) balancing(1.0);
  return cluster;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
