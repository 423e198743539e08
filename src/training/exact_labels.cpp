// SPDX-License-Identifier: Apache-2.0
#include "training/exact_labels.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "chunks.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {

Labels exact_labels(const SoftmaxLayer& layer, const Contexts& contexts, std::size_t top, std::size_t depth,
                    double value, double temperature) {
  Labels labels;
  labels.depth = std::min(depth, layer.vocab());
  labels.top = std::min(top, labels.depth);
  labels.ids.resize(contexts.count * labels.depth);
  labels.weights.resize(labels.ids.size());
  const Fused fused(layer);
  for_each_chunk(contexts.count, [&](std::size_t first, std::size_t count) {
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

}  // namespace topksoftmax
