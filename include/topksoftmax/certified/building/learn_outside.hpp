// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/context_regions.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/outside_estimate.hpp"
#include "topksoftmax/certified/outside_features.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/learning/outside_sample.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/spherical_kmeans.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Multiply-adds that the logits of contexts which log Z's estimate is learned from may take …
inline constexpr std::size_t kOutsideWork = std::size_t{1} << 37;
/// … or those of so many contexts, where that is more.
inline constexpr std::size_t kOutsideContexts = 1000;
/// Contexts for each feature: where there are fewer, less is wrong that knows fewer coordinates.
inline constexpr std::size_t kContextsOfFeature = 16;
/// The same for the leading coordinates and their products, which tell the most.
inline constexpr std::size_t kContextsOfLeading = 4;
/// Contexts that a region has in the mean, at least: a few have nothing to add to the models of all contexts.
inline constexpr std::size_t kContextsOfRegion = 1000;

/// What the bounds of some contexts leave outside for each size of k (OutsideOf: the group), and the features
/// that it is to be learned from.
inline OutsideSample measure_bounded(const SoftmaxLayer& layer, const CertifiedIndex& index,
                                     const OutsideFeatures& features, const RowMajorMatrix& contexts,
                                     const StepProgress& report, const Executor& executor) {
  const std::size_t vocab = layer.vocab();
  OutsideSample sample(RowMajorMatrix::Zero(contexts.rows() * static_cast<Eigen::Index>(kOutsideModels),
                                            static_cast<Eigen::Index>(features.count())));
  const auto measure = [&](std::size_t context, const float* logits, Workspace& workspace) {
    std::vector<float> left(vocab);
    Query query;
    query.h = contexts.row(static_cast<Eigen::Index>(context)).data();
    for (std::size_t model = 0; model < kOutsideModels; ++model) {
      const std::size_t i = context * kOutsideModels + model;
      query.k = learning_k(static_cast<OutsideOf>(model), index.options.expected_k, vocab);
      query.same_context = model > 0;
      const ContextBounds& bounds = bound(index, query, workspace);
      const Candidates found = screen_bounded({layer, index, query, bounds, workspace});
      const bool bounded = !found.everything && found.outside_low < found.outside_high;
      if (!bounded || !std::isfinite(found.outside_high)) continue;
      features.put(bounds.coordinates, found.outside_low, found.outside_high,
                   sample.contexts.row(static_cast<Eigen::Index>(i)).data());
      std::copy_n(logits, vocab, left.begin());
      sample.take(i, model, split_mass(found, vocab, left.data()));
    }
  };
  for_each_scored(layer, contexts, report, executor, measure);
  return sample;
}

/// Regions of the contexts that are in a sample of the bounds, by so many leading coordinates.
inline ContextRegions learn_regions(const OutsideSample& sample, std::size_t leading,
                                    const Executor& executor) {
  std::vector<Eigen::Index> learned_from;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    if (sample.groups[i] == static_cast<std::size_t>(OutsideOf::expected))
      learned_from.push_back(static_cast<Eigen::Index>(i));
  }
  const std::size_t regions = std::min(learned_from.size() / kContextsOfRegion, ContextRegions::kMost);
  if (regions < 2) return {};
  const RowMajorMatrix coordinates =
      sample.contexts(learned_from, Eigen::seqN(0, static_cast<Eigen::Index>(leading)));
  const std::vector<float> centres =
      spherical_kmeans(Contexts::of(coordinates), {.clusters = regions}, executor);
  return ContextRegions(Eigen::Map<const RowMajorMatrix>(centres.data(), static_cast<Eigen::Index>(regions),
                                                         coordinates.cols()));
}

/// The models of all sizes of k (OutsideOf), one size behind the other; where one has none, those of another
/// stand for it. None where no size has any.
inline std::optional<OutsideMass> all_models(
    const std::array<std::optional<OutsideMass>, kOutsideModels>& of_size) {
  const auto known = [](const std::optional<OutsideMass>& mass) { return mass.has_value(); };
  const auto expected = of_size.begin() + static_cast<std::ptrdiff_t>(OutsideOf::expected);
  const auto other = expected->has_value() ? expected : std::find_if(of_size.begin(), of_size.end(), known);
  if (other == of_size.end()) return std::nullopt;
  OutsideMass::Learned all = (*other)->learned();
  std::vector<StoredRows> models;
  for (const std::optional<OutsideMass>& mass : of_size) {
    const OutsideMass& one = mass ? *mass : **other;
    models.push_back(one.models());
    all.most = std::max(all.most, one.most());
  }
  all.models = stacked(models);
  return OutsideMass(std::move(all));
}

/// The features that so many contexts can teach, of `width` coordinates at the most.
inline OutsideFeatures features_for(std::size_t contexts, std::size_t width) {
  const std::size_t leading = OutsideFeatures(OutsideFeatures::paired(width)).count();
  const std::size_t most =
      std::max(contexts / kContextsOfFeature, std::min(contexts / kContextsOfLeading, leading));
  return OutsideFeatures::at_most(most, width);
}

/// Whether a model errs no more than the typical position would, in the median of the contexts of its sample
/// that were held out.
inline bool is_worth_keeping(const OutsideMass& mass, const OutsideEstimate& estimate,
                             const OutsideSample& sample) {
  const auto by_position = [&](std::size_t i) {
    const float* const features = sample.context(i);
    return estimate.between(estimate.features.low(features), estimate.features.high(features));
  };
  constexpr double most = std::numeric_limits<double>::infinity();
  const LogZError typical = error_of(by_position, most, sample, OutsideSplit(sample).held_out);
  return mass.error().median <= typical.median;
}

/// Learns the estimate of log Z of an index from at most `count` of the contexts [N×d], of as many leading
/// coordinates as these can teach; from fewer, but no fewer than 1,000, where more would take over 2³⁷
/// multiply-adds. Cost: V·d multiply-adds for each. Nothing where there are fewer than 100 contexts, and
/// where the typical position errs less, for the expected k.
inline void learn_outside(const SoftmaxLayer& layer, const RowMajorMatrix& contexts, std::size_t count,
                          const StepProgress& report, const Executor& executor, CertifiedIndex& index) {
  const std::size_t affordable = std::max(kOutsideWork / (layer.vocab() * layer.dim()), kOutsideContexts);
  const std::size_t most = std::min({count, affordable, static_cast<std::size_t>(contexts.rows())});
  const std::size_t width = index.stored_width();
  if (most < kFewestSampled) return;
  const OutsideFeatures features = features_for(most, width);
  const RowMajorMatrix some = evenly_spaced(Contexts::of(contexts), most);
  OutsideSample sample = measure_bounded(layer, index, features, some, report, executor);
  OutsideEstimate estimate = index.outside;
  estimate.features = features;
  estimate.regions = learn_regions(sample, OutsideFeatures::paired(width), executor);
  const std::vector<std::size_t> sizes = sample.groups;
  std::array<std::optional<OutsideMass>, kOutsideModels> of_size;
  for (std::size_t size = 0; size < kOutsideModels; ++size) {
    for (std::size_t i = 0; i < sample.size(); ++i)
      sample.groups[i] = sizes[i] == size ? estimate.regions.of(sample.context(i)) : Candidates::no_group;
    of_size[size] = fit_outside_mass(sample, estimate.regions.count(), executor);
    const bool expected = size == static_cast<std::size_t>(OutsideOf::expected);
    if (expected && of_size[size] && !is_worth_keeping(*of_size[size], estimate, sample)) return;
  }
  estimate.models = all_models(of_size);
  index.outside = std::move(estimate);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
