// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/evaluation/confidence.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/evaluation/tune_options.hpp"
#include "topksoftmax/evaluation/tuning_plan.hpp"
#include "topksoftmax/evaluation/tuning_search.hpp"
#include "topksoftmax/evaluation/tuning_trials.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/shuffled.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/registry/registry.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/stopwatch.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Finds the fastest backend of a registry, with its settings, whose answers are good enough. tuner.hpp has
/// the same for the library's own.
///
/// What is tried are the backends of the registry, each as its description plans it (TuningPlan). Of the
/// standard one `Fused`, `Certified` and `Quantized` are always tried; then, while there is time, every other
/// system that needs no more than the layer, contexts and counts: `Shortlist` (with counts), `SvdSoftmax`,
/// l2s-kmeans of 30, 100 and 200 clusters, `Fgd`, `RowClusters`, `AdaptiveSoftmax`, `WtaLsh`, `WtaLshEach`,
/// `PcaMips`, `LshMips`, `GreedyMips`, and `Certify` over L2S. The contexts are divided at random into those
/// to learn from and those to judge on. Of each system the least value of its own trade-off that meets the
/// target is found by bisection. Where a query's effort trades too, one build serves all values: an L2S that
/// misses the target with one cluster visited may meet it with three. At last `L2S` learns, for it takes the
/// longest, where k-means did best.
///
/// Before a setting is judged on all contexts, a glance on a few compares its speed with that of the fastest
/// so far that meets the target. What takes 1.5 times as long is given up, with all slower values, so a
/// system that cannot win costs its build and milliseconds. So does an index larger than it may be. What is
/// left, and the three, are then timed against each other in one run (time_interleaved), asked for k tokens
/// with probabilities. The fastest is taken, so nothing slower than `Fused`, which is what there is if
/// nothing else will do.
///
/// What counts is not a row's measured precision but its lower bound: mean_lower_bound over the validation
/// contexts at a confidence of 1 − (1 − confidence)/m, m being the number of settings that the search could
/// have come to. So with the confidence asked for, all bounds hold together, whichever the search chose
/// (Bonferroni) — for contexts drawn as the given ones are, and independent of each other. Where not even
/// right answers alone could prove the target from so many contexts (TuneResult::provable), and so for a
/// precision of 1, only backends that are exact by proof are eligible, and no other is tried but `Quantized`.
///
/// Deterministic but for the times, and what they decide. Memory: a copy of the contexts used, the exact
/// answers to those that are judged on, and until the end the index of everything that is always tried or met
/// the target, beside the one that is being tried and what its build takes. Cost: builds and learning of what
/// is tried (each L2S: N·V·d multiply-adds and its training), answers to the validation contexts from those
/// that are fast enough, on the executor's threads; then about ten seconds on one. Throws Error for fewer
/// than 10 contexts, for contexts of another dimension or that are not finite, for counts that are not V, for
/// unusable options, and for a registry that plans no exact backend first. What `progress` throws is passed
/// on.
TuneResult tune(const SoftmaxLayer& layer, const Contexts& contexts, const TuneOptions& options,
                const Registry& registry, const Executor& executor = default_executor());

inline TuneResult tune(const SoftmaxLayer& layer, const ConstRows& contexts, const TuneOptions& options,
                       const Registry& registry, const Executor& executor = default_executor()) {
  return tune(layer, Contexts::of(contexts), options, registry, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline constexpr std::size_t kFewestContexts = 10;

/// One context in so many is for validation.
inline constexpr std::size_t kValidationShare = 5;

/// The doubt that a confidence must leave: divided among the settings, much less is lost in rounding.
inline constexpr double kLeastDoubt = 1e-9;

/// The share of the progress at which the search ends and the timing begins.
inline constexpr double kSearchShare = 0.9;

inline void check_tuning(const SoftmaxLayer& layer, const Contexts& contexts, const TuneOptions& options) {
  if (contexts.count < kFewestContexts) {
    throw Error("tune: there are " + std::to_string(contexts.count) + " contexts; at least " +
                std::to_string(kFewestContexts) + " are needed");
  }
  check_contexts(layer, contexts, "tune");
  const auto refuse = [](const std::string& name, const std::string& value, const std::string& limit) {
    throw Error("tune: " + name + " is " + value + "; it must be " + limit);
  };
  const auto check_range = [&](const char* name, double value, bool inside, const char* limit) {
    if (!inside) refuse(name, value_text(value), limit);
  };
  if (options.target.k == 0) refuse("target.k", "0", "at least 1");
  if (options.max_fit == 0) refuse("max_fit", "0", "at least 1");
  if (options.max_validation == 0) refuse("max_validation", "0", "at least 1");
  const double precision = options.target.precision;
  check_range("target.precision", precision, precision > 0.0 && precision <= 1.0, "above 0 and at most 1");
  check_range("confidence", options.confidence,
              options.confidence > 0.0 && options.confidence <= 1.0 - kLeastDoubt,
              "above 0 and at most 1 - 1e-9");
  check_range("max_seconds", options.max_seconds, options.max_seconds >= 0.0, "at least 0");
  if (const std::optional<double> microseconds = options.budget.microseconds)
    check_range("budget.microseconds", *microseconds, *microseconds > 0.0, "above 0");
  if (!options.counts.empty() && options.counts.size() != layer.vocab()) {
    refuse("the number of counts", std::to_string(options.counts.size()),
           "V = " + std::to_string(layer.vocab()) + ", or 0");
  }
  const auto negative = std::find_if(options.counts.begin(), options.counts.end(),
                                     [](std::int64_t count) { return count < 0; });
  if (negative != options.counts.end()) {
    refuse("counts[" + std::to_string(negative - options.counts.begin()) + "]", std::to_string(*negative),
           "at least 0");
  }
}

/// How many contexts, all answered right, prove a precision; 0 for a precision of 1, which none do.
inline std::size_t contexts_to_prove(double precision, double confidence) {
  if (precision == 1.0) return 0;
  return static_cast<std::size_t>(std::ceil(std::log1p(-confidence) / std::log(precision)));
}

/// Some of the contexts, in one piece.
class ChosenContexts {
 public:
  ChosenContexts(const Contexts& all, std::span<const std::size_t> chosen)
      : count_(chosen.size()), dim_(all.dim) {
    values_.reserve(count_ * dim_);
    for (const std::size_t i : chosen) values_.insert(values_.end(), all.row(i), all.row(i) + dim_);
  }

  Contexts view() const { return {values_.data(), count_, dim_, dim_}; }

 private:
  std::size_t count_;
  std::size_t dim_;
  std::vector<float> values_;
};

/// The first `count` of some numbers, ascending: contexts keep the order that they came in.
inline std::span<const std::size_t> first_sorted(std::span<std::size_t> numbers, std::size_t count) {
  const std::span<std::size_t> chosen = numbers.first(std::min(count, numbers.size()));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

/// The contexts, divided at random into those to learn from and those to judge on. Equal ones may be among
/// both: what comes often is asked for often, and without it a backend that fails there would be proven good.
struct Division {
  ChosenContexts fit;
  ChosenContexts validation;
};

inline Division divide_contexts(const Contexts& contexts, const TuneOptions& options) {
  std::mt19937_64 engine(options.seed);
  std::vector<std::size_t> order = shuffled(contexts.count, engine);
  const std::span<std::size_t> held_out = std::span(order).first(contexts.count / kValidationShare);
  const std::span<std::size_t> others = std::span(order).subspan(held_out.size());
  return {.fit = {contexts, first_sorted(others, options.max_fit)},
          .validation = {contexts, first_sorted(held_out, options.max_validation)}};
}

/// What the caller's progress has thrown, of a type that nobody takes for the refusal of a backend.
struct ThrownByProgress {
  std::exception_ptr exception;
};

/// Tells of a share done that never falls. Throws ThrownByProgress.
class Reporter {
 public:
  explicit Reporter(const TrainingProgress& progress) : progress_(progress) {}

  void tell(std::string_view step) const {
    if (!progress_) return;
    try {
      progress_(step, done_);
    } catch (...) {
      throw ThrownByProgress{std::current_exception()};
    }
  }

  /// Now the search tries the next of `axes` at most.
  void begin(const TuningAxis& axis, std::size_t axes) {
    trying_ = "trying " + axis.backend;
    done_ = std::max(done_, kSearchShare * static_cast<double>(begun_++) / static_cast<double>(axes));
    tell(trying_);
  }

  /// A step of what is being tried.
  void tell_of_trial(std::string_view step) const { tell(trying_ + ": " + std::string(step)); }

  /// Such a share of the timing is done, after all trials.
  void time(double share) {
    done_ = std::max(done_, kSearchShare + (1.0 - kSearchShare) * share);
    tell("timing");
  }

 private:
  const TrainingProgress& progress_;
  double done_ = 0.0;
  std::size_t begun_ = 0;
  std::string trying_;
};

/// All axes that there are.
struct Axes {
  std::vector<TuningAxis> standard;
  std::vector<TuningAxis> searched;

  /// Those, and the refined form of one.
  std::size_t steps() const { return standard.size() + searched.size() + 1; }

  /// Settings that a search can come to, and that are not exact anyway.
  std::size_t settings() const {
    std::size_t count = 0;
    for (const std::vector<TuningAxis>* axes : {&standard, &searched}) {
      for (const TuningAxis& axis : *axes) count += axis.exact ? 0 : count_settings(axis);
    }
    return count;
  }
};

/// Tries what is to be tried: only what is exact, unless the target is `provable` by right answers. False
/// where `check_time` has thrown OutOfTime.
inline bool search(const Axes& axes, bool provable, const std::function<void()>& check_time,
                   TuningTrials& trials, Reporter& reporter) {
  for (const TuningAxis& axis : axes.standard) {
    reporter.begin(axis, axes.steps());
    trials.try_standard(axis);
  }
  try {
    TuningSearch search(trials, check_time);
    for (const TuningAxis& axis : axes.searched) {
      if (!axis.exact && !provable) continue;
      reporter.begin(axis, axes.steps());
      search.run(axis);
    }
    if (const TuningAxis* refined = search.to_refine()) {
      reporter.begin(*refined, axes.steps());
      search.refine();
    }
  } catch (const OutOfTime&) {
    return false;
  }
  return true;
}

/// What the trials, once timed, come to.
inline TuneResult result_of(const TuningTrials& trials, const TuneBudget& budget) {
  TuneResult result;
  result.chosen = trials.fastest();
  result.rows = trials.explain(result.chosen);
  result.effort = result.row().effort;
  trials.backend(result.chosen)->set_usual_effort(result.effort);
  result.backend = trials.backend(result.chosen);
  result.within_budget = !budget.microseconds || result.row().microseconds <= *budget.microseconds;
  return result;
}

/// tune(), of arguments that have been checked. Throws ThrownByProgress.
inline TuneResult tune_checked(const SoftmaxLayer& layer, const Contexts& contexts,
                               const TuneOptions& options, const Registry& registry,
                               const Executor& executor) {
  const SteadyClock::time_point start = SteadyClock::now();
  const auto check_time = [&] {
    if (seconds_since(start) >= options.max_seconds) throw OutOfTime{};
  };
  Reporter reporter(options.progress);
  reporter.tell("finding the exact answers");

  const auto [fit, validation] = divide_contexts(contexts, options);
  const TuningMaterial material = {.layer = layer,
                                   .fit = fit.view(),
                                   .counts = options.counts,
                                   .k = std::min(options.target.k, layer.vocab()),
                                   .progress =
                                       [&](std::string_view step, double) {
                                         check_time();
                                         reporter.tell_of_trial(step);
                                       },
                                   .executor = executor};
  TuningMaterial always = material;  // whatever the time
  always.progress = [&](std::string_view step, double) { reporter.tell_of_trial(step); };
  const Axes axes = {standard_axes(registry, always), searched_axes(registry, material)};
  if (axes.standard.empty() || !axes.standard.front().exact) {
    throw Error("tune: the registry plans no exact backend to be always tried, first of all; add one: fused");
  }
  // Where all are exact, none has anything to prove.
  const auto settings = static_cast<double>(std::max<std::size_t>(axes.settings(), 1));
  const double row_confidence = 1.0 - (1.0 - options.confidence) / settings;
  TuningTrials trials(layer, validation.view(), options, row_confidence, executor);
  const double provable = mean_lower_bound(1.0, validation.view().count, row_confidence);
  const bool finished = search(axes, provable >= options.target.precision, check_time, trials, reporter);
  trials.time([&](double share) { reporter.time(share); });

  TuneResult result = result_of(trials, options.budget);
  result.k = material.k;
  result.finished = finished;
  result.fit = material.fit.count;
  result.validation = validation.view().count;
  result.provable = provable;
  result.validation_needed = contexts_to_prove(options.target.precision, row_confidence);
  return result;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline TuneResult tune(const SoftmaxLayer& layer, const Contexts& contexts, const TuneOptions& options,
                       const Registry& registry, const Executor& executor) {
  detail::check_tuning(layer, contexts, options);
  try {
    return detail::tune_checked(layer, contexts, options, registry, executor);
  } catch (const detail::ThrownByProgress& thrown) {
    std::rethrow_exception(thrown.exception);
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE
