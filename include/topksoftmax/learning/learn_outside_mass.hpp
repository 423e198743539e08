// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/outside_regression.hpp"
#include "topksoftmax/learning/outside_sample.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/numeric/quantile.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Parts that contexts are divided into.
inline constexpr std::size_t kFifths = 5;

/// Which of them context i of `count` is in. Runs of neighbours stay together: contexts of one text are
/// alike.
inline std::size_t fifth_of(std::size_t i, std::size_t count) {
  constexpr std::size_t kRuns = 5 * kFifths;
  return i * kRuns / count % kFifths;
}

/// Which of a sample's contexts the models are fitted to, which choose how strongly they are shrunk, and
/// which none has seen.
struct OutsideSplit {
  std::vector<std::size_t> fitted;     ///< 3/5
  std::vector<std::size_t> validated;  ///< 1/5
  std::vector<std::size_t> held_out;   ///< 1/5

  explicit OutsideSplit(const OutsideSample& sample) {
    for (std::size_t i = 0; i < sample.size(); ++i) {
      if (sample.groups[i] == Candidates::no_group) continue;
      const std::size_t fifth = fifth_of(i, sample.size());
      (fifth == 4 ? held_out : fifth == 3 ? validated : fitted).push_back(i);
    }
  }
};

/// Ridges to choose among.
inline constexpr std::array<double, 4> kRidges = {0.3, 3.0, 30.0, 300.0};

/// Fewer contexts than this teach nothing: a hundredth of those that are held out would be none.
inline constexpr std::size_t kFewestSampled = 100;

/// |log Z − the exact one| of a context whose mass outside is taken to be exp(found), but no more than
/// exp(most) times that of the candidates.
inline double log_z_error(const OutsideSample& sample, std::size_t i, double found, double most) {
  const double inside = sample.inside[i];
  return std::abs(kernels::log_add_exp(inside, std::min(found, inside + most)) -
                  kernels::log_add_exp(inside, sample.outside[i]));
}

/// The contexts of each group.
inline std::vector<std::vector<std::size_t>> by_group(const OutsideSample& sample, std::size_t groups,
                                                      std::span<const std::size_t> which) {
  std::vector<std::vector<std::size_t>> lists(groups);
  for (const std::size_t i : which) lists[sample.groups[i]].push_back(i);
  return lists;
}

/// The place of the lowest of each ridge's sum of errors.
inline std::size_t best_ridge(std::span<const double> errors) {
  return static_cast<std::size_t>(std::min_element(errors.begin(), errors.end()) - errors.begin());
}

/// The ridges with which models that are fitted to 3/5 of a sample are least wrong, in the mean, on another
/// fifth: of the model of all contexts, and of what is added to it for a group.
struct ChosenRidges {
  double common = 0.0;
  double groups = 0.0;

  ChosenRidges(const OutsideSample& sample, const OutsideSplit& split, std::size_t count, double most,
               const OutsideRegression& regression, const Executor& executor) {
    const std::vector<OutsideRegression::Model> models = regression.fit(split.fitted, kRidges);
    std::array<double, kRidges.size()> errors{};
    for (std::size_t r = 0; r < kRidges.size(); ++r) {
      for (const std::size_t i : split.validated)
        errors[r] += log_z_error(sample, i, regression.predict(models[r], i), most);
    }
    const std::size_t best = best_ridge(errors);
    common = kRidges[best];
    if (count == 1) return;

    const auto fitted = by_group(sample, count, split.fitted);
    const auto validated = by_group(sample, count, split.validated);
    std::vector<std::array<double, kRidges.size()>> of_group(count);
    for_each_part(executor, count, 1, [&](std::size_t g, std::size_t) {
      of_group[g].fill(0.0);
      if (fitted[g].empty() || validated[g].empty()) return;
      const auto added = regression.fit_group(fitted[g], models[best], kRidges);
      for (std::size_t r = 0; r < kRidges.size(); ++r) {
        const OutsideRegression::Model model = models[best] + added[r];
        for (const std::size_t i : validated[g])
          of_group[g][r] += log_z_error(sample, i, regression.predict(model, i), most);
      }
    });
    errors.fill(0.0);
    for (const auto& group : of_group) {
      for (std::size_t r = 0; r < kRidges.size(); ++r) errors[r] += group[r];
    }
    groups = kRidges[best_ridge(errors)];
  }
};

/// The errors in these contexts where the mass outside of context i is taken to be exp(found(i)), but no more
/// than exp(most) times that of its candidates.
template <class Found>
LogZError error_of(const Found& found, double most, const OutsideSample& sample,
                   std::span<const std::size_t> which) {
  std::vector<double> errors;
  for (const std::size_t i : which) errors.push_back(log_z_error(sample, i, found(i), most));
  return {.median = quantile(errors, 0.5), .p99 = quantile(errors, 0.99)};
}

/// Fits the mass outside of the candidates to a sample, whose groups are below `groups`. A fifth of it is
/// held out, to tell the error, and another chooses the ridges before it is learned from as well. The same
/// model for any number of threads. Nothing where the sample is too small, or what is learned beyond the
/// floats.
inline std::optional<OutsideMass> fit_outside_mass(const OutsideSample& sample, std::size_t groups,
                                                   const Executor& executor) {
  const OutsideSplit split(sample);
  if (split.fitted.size() + split.validated.size() + split.held_out.size() < kFewestSampled ||
      split.fitted.empty() || split.validated.empty() || split.held_out.empty()) {
    return std::nullopt;
  }
  std::vector<std::size_t> learned = split.fitted;
  learned.insert(learned.end(), split.validated.begin(), split.validated.end());
  std::sort(learned.begin(), learned.end());
  double most = -std::numeric_limits<double>::infinity();
  for (const std::size_t i : learned) most = std::max(most, sample.outside[i] - sample.inside[i]);

  const OutsideRegression regression(sample, learned, executor);
  const ChosenRidges ridges(sample, split, groups, most, regression, executor);
  const OutsideRegression::Model common = regression.fit(learned, std::span(&ridges.common, 1)).front();
  const auto lists = by_group(sample, groups, learned);
  RowMajorMatrix weights(static_cast<Eigen::Index>(groups), static_cast<Eigen::Index>(sample.dim()));
  Eigen::VectorXf offsets(static_cast<Eigen::Index>(groups));
  for_each_part(executor, groups, 1, [&](std::size_t g, std::size_t) {
    OutsideRegression::Model model = common;
    if (groups > 1 && !lists[g].empty())
      model += regression.fit_group(lists[g], common, std::span(&ridges.groups, 1)).front();
    const auto at = static_cast<Eigen::Index>(g);
    regression.unscale(model, weights.row(at), offsets[at]);
  });
  if (!weights.allFinite() || !offsets.allFinite() || !std::isfinite(most)) return std::nullopt;

  OutsideMass::Learned found = {
      .models = StoredRows(weights, std::move(offsets)), .error = {}, .most = most, .sample = sample.size()};
  const OutsideMass mass(found);
  const auto by_models = [&](std::size_t i) { return mass.log_mass(sample.groups[i], sample.context(i)); };
  found.error = error_of(by_models, most, sample, split.held_out);
  return OutsideMass(std::move(found));
}

/// Learns the mass outside of a screener's candidates, whose groups are below `groups`, from at most `count`
/// of the contexts; 0: nothing. Cost: count·V·d multiply-adds and exponentials as many as logits (see
/// measure_outside), and for the regression twice count·d² multiply-adds and groups·d³.
template <class Screener>
std::optional<OutsideMass> learn_outside_mass(const SoftmaxLayer& layer, const Screener& screener,
                                              std::size_t groups, const Contexts& contexts, std::size_t count,
                                              const Executor& executor, const StepProgress& report = {}) {
  if (std::min(count, contexts.count) < kFewestSampled) return std::nullopt;
  const auto screener_of = [&screener](std::size_t) -> const Screener& { return screener; };
  const OutsideSample sample =
      measure_outside(layer, screener_of, evenly_spaced(contexts, count), report, executor);
  return fit_outside_mass(sample, groups, executor);
}

/// The backend of this screener, which counts the mass outside of its candidates as learn_outside_mass() has
/// learned it.
template <class Backend, class Screener>
std::unique_ptr<Backend> with_learned_outside(SoftmaxLayer layer, Screener screener, std::size_t groups,
                                              const Contexts& contexts, std::size_t count,
                                              const Executor& executor, const StepProgress& report = {}) {
  std::optional<OutsideMass> outside =
      learn_outside_mass(layer, screener, groups, contexts, count, executor, report);
  if (report) report(1.0);
  return std::make_unique<Backend>(std::move(layer), std::move(screener), std::move(outside));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
