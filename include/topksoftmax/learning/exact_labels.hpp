// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/learning/chunks.hpp"
#include "topksoftmax/learning/labels.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The exact top `depth` tokens of every context, of which the first `top` are its labels; both at most V. A
/// near miss weighs value · exp((its logit − the last label's)/temperature): as much as its odds of being a
/// label elsewhere. Cost: N·V·d multiply-adds, on the threads of the
/// executor.
inline Labels exact_labels(const SoftmaxLayer& layer, const Contexts& contexts, std::size_t top,
                           std::size_t depth, double value, double temperature, const Executor& executor) {
  Labels labels;
  labels.depth = std::min(depth, layer.vocab());
  labels.top = std::min(top, labels.depth);
  labels.ids.resize(contexts.count * labels.depth);
  labels.weights.resize(labels.ids.size());
  const Fused fused(layer);
  for_each_chunk(executor, contexts.count, [&](std::size_t first, std::size_t count) {
    std::vector<Workspace> workspace(1);
    std::vector<TopK> answers(count);
    fused.query_batch(contexts.row(first), count, contexts.dim, contexts.stride,
                      {.k = labels.depth, .probabilities = false}, workspace, answers);
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<float>& logits = answers[i].logits;
      const std::size_t at = (first + i) * labels.depth;
      for (std::size_t n = 0; n < labels.depth; ++n) {
        labels.ids[at + n] = answers[i].ids[n];
        const auto gap = static_cast<double>(logits[n]) - static_cast<double>(logits[labels.top - 1]);
        labels.weights[at + n] =
            n < labels.top ? 1.0F : static_cast<float>(value * std::exp(gap / temperature));
      }
    }
  });
  return labels;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
