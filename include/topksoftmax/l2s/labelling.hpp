// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/exact_labels.hpp"
#include "topksoftmax/learning/labels.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

// Work is counted in multiply-adds of a batched scan: 0.021 ns each on a core of the machine of
// certified/building/costs.hpp. The figures are of heads of 32,000 × 512 and 151,936 × 1,024.

/// What Certified takes to build, in scans of a context for each of the d dimensions.
inline constexpr double kBuildScans = 35.0;
/// What a query of it takes whatever the layer, …
inline constexpr double kQueryWork = 5e5;
/// … for a byte that it reads, and for a row or box that it bounds.
inline constexpr double kByteWork = 1.2;
inline constexpr double kBoundWork = 25.0;

/// Whether the bounds of Certified may save half as much again as building them takes.
inline bool bounds_may_pay(const SoftmaxLayer& layer, std::size_t contexts) {
  constexpr double kWorth = 1.5;
  const auto dim = static_cast<double>(layer.dim());
  const double scan = static_cast<double>(layer.vocab()) * dim;
  return static_cast<double>(contexts) * (scan - kQueryWork) >= kWorth * kBuildScans * dim * scan;
}

/// Whether its queries for the top `k` make less work than scans do, in the mean over some contexts.
inline bool bounds_pay(const Certified& certified, const Contexts& contexts, std::size_t k) {
  constexpr std::size_t kCountedContexts = 64;
  const SoftmaxLayer& layer = certified.layer();
  const RowMajorMatrix some = evenly_spaced(contexts, kCountedContexts);
  const double scan = static_cast<double>(layer.vocab()) * static_cast<double>(layer.dim());
  double saved = 0.0;
  Workspace workspace;
  TopK answer;
  for (Eigen::Index i = 0; i < some.rows(); ++i) {
    certified.query(some.row(i), {.k = k, .probabilities = false}, workspace, answer);
    saved += scan - kQueryWork - kByteWork * static_cast<double>(answer.work.bytes_read) -
             kBoundWork * static_cast<double>(answer.work.screened);
  }
  return saved > 0.0;
}

/// The exact labels of every context, by scans of all rows or by the bounds of Certified, whichever makes
/// less work: they are the same. Cost: N·V·d multiply-adds, or less.
inline Labels cheapest_labels(const SoftmaxLayer& layer, const Contexts& contexts,
                              const LabelOptions& options, const TrainingProgress& progress,
                              const Executor& executor) {
  constexpr const char* kLabelling = "labelling the contexts";
  CertifiedOptions bounding;
  bounding.expected_k = options.depth;
  bounding.outside_sample = 0;
  double built = 0.0;
  if (bounds_may_pay(layer, contexts.count)) {
    built = 0.3;
    bounding.progress = part_of(progress, 0.0, built);
    const auto certified = Certified::build(layer, contexts, bounding, executor);
    if (bounds_pay(*certified, contexts, options.depth))
      return exact_labels(*certified, contexts, options, step_of(progress, kLabelling, built, 1.0), executor);
  }
  return exact_labels(Fused(layer), contexts, options, step_of(progress, kLabelling, built, 1.0), executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
