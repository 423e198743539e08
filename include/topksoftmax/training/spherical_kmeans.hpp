// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/export.hpp"

namespace topksoftmax {

struct SphericalKMeansOptions {
  std::size_t clusters = 100;   ///< r
  std::size_t iterations = 20;  ///< at most; it ends when no context changes its cluster
  std::uint64_t seed = 1;       ///< of the contexts that the clusters begin at
  std::function<void(double done)> progress = {};
};

/// Spherical k-means: unit vectors v_t [r×d] that make Σ_i max_t v_t·h_i/‖h_i‖ large (locally the largest).
/// Begins at different contexts far from each other (k-means++); a cluster that loses all its contexts begins
/// anew at the context that fits worst. Deterministic for a seed, for any number of threads. Cost:
/// iterations·N·r·d multiply-adds. Throws Error without contexts or clusters.
TOPKSOFTMAX_EXPORT std::vector<float> spherical_kmeans(const Contexts& contexts,
                                                       const SphericalKMeansOptions& options);

/// argmax_t v_t·h_i of every context, v [clusters×dim]; the lower of equals.
TOPKSOFTMAX_EXPORT std::vector<std::int32_t> assign_clusters(const Contexts& contexts,
                                                             const std::vector<float>& v,
                                                             std::size_t clusters);

}  // namespace topksoftmax
