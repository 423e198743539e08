// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/chunks.hpp"
#include "topksoftmax/learning/labels.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/reported_parts.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What labels are asked for: the exact top `depth` tokens of a context, of which the first `top` are its
/// labels; V where that is less. A near miss weighs near_miss_value · exp((its logit − the last label's) /
/// near_miss_temperature): as much as its odds of being a label elsewhere.
struct LabelOptions {
  std::size_t top = 1;
  std::size_t depth = 1;
  double near_miss_value = 0.0;
  double near_miss_temperature = 1.0;
};

/// The labels of every context, from a backend that answers exactly. Cost: N of its queries, in batches, on
/// the threads of the executor.
inline Labels exact_labels(const TopKSoftmax& exact, const Contexts& contexts, const LabelOptions& options,
                           const StepProgress& report, const Executor& executor) {
  Labels labels;
  labels.depth = std::min(options.depth, exact.layer().vocab());
  labels.top = std::min(options.top, labels.depth);
  labels.ids.resize(contexts.count * labels.depth);
  labels.weights.resize(labels.ids.size());
  for_each_reported_part(executor, contexts.count, kChunk, report, [&](std::size_t first, std::size_t count) {
    std::vector<Workspace> workspace(1);
    std::vector<TopK> answers(count);
    exact.query_batch(contexts.row(first), count, contexts.dim, contexts.stride,
                      {.k = labels.depth, .probabilities = false}, workspace, answers);
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<float>& logits = answers[i].logits;
      const std::size_t at = (first + i) * labels.depth;
      for (std::size_t n = 0; n < labels.depth; ++n) {
        labels.ids[at + n] = answers[i].ids[n];
        const auto gap = static_cast<double>(logits[n]) - static_cast<double>(logits[labels.top - 1]);
        labels.weights[at + n] =
            n < labels.top
                ? 1.0F
                : static_cast<float>(options.near_miss_value * std::exp(gap / options.near_miss_temperature));
      }
    }
  });
  return labels;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
