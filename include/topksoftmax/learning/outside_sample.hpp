// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/reported_parts.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// log Σ exp(logit) over the candidates of a context, and over all other tokens.
struct SplitMass {
  double inside;
  double outside;
};

/// What a screener leaves out in some contexts.
struct OutsideSample {
  /// Of contexts that are not measured yet.
  explicit OutsideSample(RowMajorMatrix some)
      : contexts(std::move(some)),
        groups(static_cast<std::size_t>(contexts.rows()), Candidates::no_group),
        inside(groups.size()),
        outside(groups.size()) {}

  RowMajorMatrix contexts;          ///< [n×d]
  std::vector<std::size_t> groups;  ///< [n], Candidates::group; no_group where nothing is to be learned
  std::vector<double> inside;       ///< [n], log Σ exp(logit) over the candidates …
  std::vector<double> outside;      ///< [n], … and over all other tokens

  std::size_t size() const { return groups.size(); }
  std::size_t dim() const { return static_cast<std::size_t>(contexts.cols()); }
  const float* context(std::size_t i) const { return contexts.row(static_cast<Eigen::Index>(i)).data(); }

  /// Takes what was measured of a context; nothing is to be learned where it is not finite.
  void take(std::size_t i, std::size_t group, const SplitMass& mass) {
    inside[i] = mass.inside;
    outside[i] = mass.outside;
    if (std::isfinite(mass.inside) && std::isfinite(mass.outside)) groups[i] = group;
  }
};

/// Contexts whose logits are held at a time, on each thread.
inline constexpr std::size_t kMeasuredTogether = 16;

/// Splits log Z of a context into that of the candidates and that of the others. Changes the logits [V].
inline SplitMass split_mass(const Candidates& candidates, std::size_t vocab, float* logits) {
  const float max = kernels::max(logits, vocab);
  double sum = 0.0;
  for (const TokenId id : candidates.ids) {
    float& logit = logits[static_cast<std::size_t>(id)];
    sum += std::exp(static_cast<double>(logit) - static_cast<double>(max));
    logit = -std::numeric_limits<float>::infinity();
  }
  return {static_cast<double>(max) + std::log(sum), kernels::log_sum_exp(logits, vocab)};
}

/// Calls visit(i, logits [V], workspace) for each of the contexts [n×d], with the logits of all tokens, which
/// it may change. Cost: n·V·d multiply-adds, on the threads of the executor.
template <class Visit>
void for_each_scored(const SoftmaxLayer& layer, const RowMajorMatrix& contexts, const StepProgress& report,
                     const Executor& executor, const Visit& visit) {
  const std::size_t vocab = layer.vocab();
  const auto score = [&](std::size_t first, std::size_t count) {
    Workspace workspace;
    std::vector<float> logits(count * vocab);
    const float* const h = contexts.row(static_cast<Eigen::Index>(first)).data();
    kernels::scan_batch(layer.rows(), h, layer.dim(), count, logits.data());
    for (std::size_t i = 0; i < count; ++i) visit(first + i, logits.data() + i * vocab, workspace);
  };
  for_each_reported_part(executor, static_cast<std::size_t>(contexts.rows()), kMeasuredTogether, report,
                         score);
}

/// Measures contexts [n×d], context i with the screener screener_of(i). Cost: n·V·d multiply-adds, n·V
/// exponentials and n queries of screeners, on the threads of the executor.
template <class ScreenerOf>
OutsideSample measure_outside(const SoftmaxLayer& layer, const ScreenerOf& screener_of,
                              RowMajorMatrix contexts, const StepProgress& report, const Executor& executor) {
  OutsideSample sample(std::move(contexts));
  const auto measure = [&](std::size_t i, float* logits, Workspace& workspace) {
    Query query;
    query.h = sample.context(i);
    const Candidates candidates = screener_of(i).screen(query, workspace);
    if (candidates.group == Candidates::no_group) return;
    sample.take(i, candidates.group, split_mass(candidates, layer.vocab(), logits));
  };
  for_each_scored(layer, sample.contexts, report, executor, measure);
  return sample;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
