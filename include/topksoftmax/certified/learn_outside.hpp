// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/outside.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/learning/outside_sample.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/reported_parts.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Multiply-adds that the logits of contexts which log Z's estimate is learned from may take.
inline constexpr std::size_t kOutsideWork = std::size_t{1} << 37;
/// Fewer contexts than so many for each feature teach less than they mislead.
inline constexpr std::size_t kContextsOfFeature = 4;

/// What the bounds of some contexts leave outside for each size of k (OutsideOf: the group), and the features
/// that it is to be learned from.
inline OutsideSample measure_bounded(const SoftmaxLayer& layer, const CertifiedIndex& index,
                                     const RowMajorMatrix& contexts, const StepProgress& report,
                                     const Executor& executor) {
  const std::size_t vocab = layer.vocab();
  const auto total = static_cast<std::size_t>(contexts.rows());
  const std::size_t width = index.stored_width();
  const std::size_t size = total * kOutsideModels;
  OutsideSample sample;
  sample.contexts = RowMajorMatrix::Zero(static_cast<Eigen::Index>(size),
                                         static_cast<Eigen::Index>(outside_features(width)));
  sample.groups.assign(size, Candidates::no_group);
  sample.inside.resize(size);
  sample.outside.resize(size);
  const auto measure = [&](std::size_t first, std::size_t count) {
    Workspace workspace;
    std::vector<float> all(count * vocab);
    std::vector<float> logits(vocab);
    const float* const h = contexts.row(static_cast<Eigen::Index>(first)).data();
    kernels::scan_batch(layer.rows(), h, layer.dim(), count, all.data());
    for (std::size_t context = 0; context < count; ++context) {
      Query query;
      query.h = h + context * layer.dim();
      const ContextBounds& bounds = bound(index, query, workspace);  // whatever k is
      for (std::size_t model = 0; model < kOutsideModels; ++model) {
        const std::size_t i = (first + context) * kOutsideModels + model;
        query.k = learning_k(static_cast<OutsideOf>(model), index.options.expected_k, vocab);
        const Candidates found = screen_bounded({layer, index, query, bounds, workspace});
        const bool bounded = !found.everything && found.outside_low < found.outside_high;
        if (!bounded || !std::isfinite(found.outside_high)) continue;
        put_outside_features({bounds.coordinates, width}, found.outside_low, found.outside_high,
                             sample.contexts.row(static_cast<Eigen::Index>(i)).data());
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(context * vocab), vocab, logits.begin());
        split_mass(found, vocab, logits.data(), sample.inside[i], sample.outside[i]);
        if (std::isfinite(sample.inside[i]) && std::isfinite(sample.outside[i])) sample.groups[i] = model;
      }
    }
  };
  for_each_reported_part(executor, total, kMeasuredTogether, report, measure);
  return sample;
}

/// Learns the estimate of log Z from at most `count` of the contexts [N×d]. Cost: count·V·d multiply-adds,
/// and no more than 2³⁷. Nothing where these allow too few contexts, or there are too few.
inline std::optional<OutsideMass> learn_outside(const SoftmaxLayer& layer, const CertifiedIndex& index,
                                                const RowMajorMatrix& contexts, std::size_t count,
                                                const StepProgress& report, const Executor& executor) {
  const std::size_t affordable = kOutsideWork / (layer.vocab() * layer.dim());
  const std::size_t most = std::min({count, affordable, static_cast<std::size_t>(contexts.rows())});
  if (most < kContextsOfFeature * outside_features(index.stored_width())) return std::nullopt;
  const RowMajorMatrix some = evenly_spaced(Contexts::of(contexts), most);
  return fit_outside_mass(measure_bounded(layer, index, some, report, executor), kOutsideModels, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
