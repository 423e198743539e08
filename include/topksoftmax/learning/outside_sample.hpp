// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/reported_parts.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What a screener leaves out in some contexts.
struct OutsideSample {
  RowMajorMatrix contexts;          ///< [n×d]
  std::vector<std::size_t> groups;  ///< [n], Candidates::group; no_group where nothing is to be learned
  std::vector<double> inside;       ///< [n], log Σ exp(logit) over the candidates …
  std::vector<double> outside;      ///< [n], … and over all other tokens

  std::size_t size() const { return groups.size(); }
  std::size_t dim() const { return static_cast<std::size_t>(contexts.cols()); }
  const float* context(std::size_t i) const { return contexts.row(static_cast<Eigen::Index>(i)).data(); }
};

/// Contexts whose logits are held at a time, on each thread.
inline constexpr std::size_t kMeasuredTogether = 16;

/// Splits log Z of a context into that of the candidates and that of the others. Changes the logits [V].
inline void split_mass(const Candidates& candidates, std::size_t vocab, float* logits, double& inside,
                       double& outside) {
  const float max = kernels::max(logits, vocab);
  double sum = 0.0;
  for (const TokenId id : candidates.ids) {
    float& logit = logits[static_cast<std::size_t>(id)];
    sum += std::exp(static_cast<double>(logit) - static_cast<double>(max));
    logit = -std::numeric_limits<float>::infinity();
  }
  inside = static_cast<double>(max) + std::log(sum);
  outside = kernels::log_sum_exp(logits, vocab);
}

/// Measures at most `count` of the contexts, evenly spaced ones. Cost: count·V·d multiply-adds, count·V
/// exponentials and count queries of the screener, on the threads of the executor.
template <class Screener>
OutsideSample measure_outside(const SoftmaxLayer& layer, const Screener& screener, const Contexts& contexts,
                              std::size_t count, const StepProgress& report, const Executor& executor) {
  OutsideSample sample;
  sample.contexts = evenly_spaced(contexts, count);
  const auto total = static_cast<std::size_t>(sample.contexts.rows());
  const std::size_t vocab = layer.vocab();
  sample.groups.assign(total, Candidates::no_group);
  sample.inside.resize(total);
  sample.outside.resize(total);
  const std::size_t size = 8 * kMeasuredTogether;
  for_each_reported_part(executor, total, size, report, [&](std::size_t first, std::size_t in_part) {
    Workspace workspace;
    std::vector<float> logits(kMeasuredTogether * vocab);
    for (std::size_t begin = first; begin < first + in_part; begin += kMeasuredTogether) {
      const std::size_t together = std::min(kMeasuredTogether, first + in_part - begin);
      kernels::scan_batch(layer.rows(), sample.context(begin), sample.dim(), together, logits.data());
      for (std::size_t i = begin; i < begin + together; ++i) {
        Query query;
        query.h = sample.context(i);
        const Candidates candidates = screener.screen(query, workspace);
        if (candidates.group == Candidates::no_group) continue;
        split_mass(candidates, vocab, logits.data() + (i - begin) * vocab, sample.inside[i],
                   sample.outside[i]);
        const bool usable = std::isfinite(sample.inside[i]) && std::isfinite(sample.outside[i]);
        if (usable) sample.groups[i] = candidates.group;
      }
    }
  });
  return sample;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
