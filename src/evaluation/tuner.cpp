// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/tuner.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <string_view>

#include "evaluation/tuning_plan.hpp"
#include "evaluation/tuning_search.hpp"
#include "evaluation/tuning_trials.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/evaluation/confidence.hpp"
#include "training/check_contexts.hpp"

namespace topksoftmax {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFewestContexts = 10;

/// One context in so many is for validation.
constexpr std::size_t kValidationShare = 5;

/// The share of the progress at which the search ends and the timing begins.
constexpr double kSearchShare = 0.9;

void check(const SoftmaxLayer& layer, const Contexts& contexts, const TuneOptions& options) {
  if (contexts.count < kFewestContexts) {
    throw Error("tune: there are " + std::to_string(contexts.count) + " contexts; at least " +
                std::to_string(kFewestContexts) + " are needed");
  }
  check_contexts(layer, contexts, "tune");
  const auto refuse = [](const std::string& name, const std::string& value, const std::string& limit) {
    throw Error("tune: " + name + " is " + value + "; it must be " + limit);
  };
  const auto check_range = [&](const char* name, double value, bool inside, const char* limit) {
    if (!inside) refuse(name, std::to_string(value), limit);
  };
  if (options.target.k == 0) refuse("target.k", "0", "at least 1");
  if (options.max_fit == 0) refuse("max_fit", "0", "at least 1");
  if (options.max_validation == 0) refuse("max_validation", "0", "at least 1");
  const double precision = options.target.precision;
  check_range("target.precision", precision, precision > 0.0 && precision <= 1.0, "above 0 and at most 1");
  check_range("confidence", options.confidence, options.confidence > 0.0 && options.confidence < 1.0,
              "above 0 and below 1");
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

/// All numbers below `count`, shuffled in the same way on every platform.
std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 engine(seed);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[engine() % i]);
  return order;
}

/// The first `count` of some numbers, ascending: contexts keep the order that they came in.
std::span<const std::size_t> first_sorted(std::span<std::size_t> numbers, std::size_t count) {
  const std::span<std::size_t> chosen = numbers.first(std::min(count, numbers.size()));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

/// Tells of a share done that never falls.
class Reporter {
 public:
  explicit Reporter(const TrainingProgress& progress) : progress_(progress) {}

  void at(double done) { done_ = std::max(done_, done); }
  void tell(std::string_view step) const {
    if (progress_) progress_(step, done_);
  }

 private:
  const TrainingProgress& progress_;
  double done_ = 0.0;
};

}  // namespace

TuneResult tune(const SoftmaxLayer& layer, const Contexts& contexts, const TuneOptions& options) {
  check(layer, contexts, options);
  const Clock::time_point start = Clock::now();
  const auto check_time = [&] {
    if (std::chrono::duration<double>(Clock::now() - start).count() >= options.max_seconds) throw OutOfTime{};
  };
  Reporter reporter(options.progress);
  reporter.tell("finding the exact answers");

  std::vector<std::size_t> order = shuffled(contexts.count, options.seed);
  const std::size_t held_out = contexts.count / kValidationShare;
  const ChosenContexts validation(contexts,
                                  first_sorted(std::span(order).first(held_out), options.max_validation));
  const ChosenContexts fit(contexts, first_sorted(std::span(order).subspan(held_out), options.max_fit));

  std::string searching;
  const TuningMaterial material = {.layer = layer,
                                   .fit = fit.view(),
                                   .counts = options.counts,
                                   .k = std::min(options.target.k, layer.vocab()),
                                   .progress = [&](std::string_view step, double) {
                                     check_time();
                                     reporter.tell(searching + ": " + std::string(step));
                                   }};
  const std::vector<TuningAxis> standard = standard_axes(material);
  const std::vector<TuningAxis> searched = searched_axes(material);
  std::size_t settings = 0;
  for (const std::vector<TuningAxis>* axes : {&standard, &searched}) {
    for (const TuningAxis& axis : *axes) settings += axis.exact ? 0 : count_settings(axis);
  }
  const double row_confidence = 1.0 - (1.0 - options.confidence) / static_cast<double>(settings);

  TuningTrials trials(layer, validation.view(), options, row_confidence);
  const double steps = static_cast<double>(standard.size() + searched.size() + 1);
  std::size_t begun = 0;
  const auto begin = [&](const TuningAxis& axis) {
    searching = "trying " + axis.backend;
    reporter.at(kSearchShare * static_cast<double>(begun++) / steps);
    reporter.tell(searching);
  };
  for (const TuningAxis& axis : standard) {
    begin(axis);
    trials.try_standard(axis);
  }
  const bool provable =
      mean_lower_bound(1.0, validation.view().count, row_confidence) >= options.target.precision;
  TuneResult result;
  try {
    TuningSearch search(trials, check_time);
    for (const TuningAxis& axis : searched) {
      if (!axis.exact && !provable) continue;
      begin(axis);
      search.run(axis);
    }
    if (const TuningAxis* refined = search.to_refine()) {
      begin(*refined);
      search.refine();
    }
  } catch (const OutOfTime&) {
    result.finished = false;
  }
  trials.time([&](double share) {
    reporter.at(kSearchShare + (1.0 - kSearchShare) * share);
    reporter.tell("timing");
  });

  const std::size_t chosen = trials.fastest();
  result.backend = trials.backend(chosen);
  result.rows = trials.explain(chosen);
  result.chosen = chosen;
  result.effort = result.rows[chosen].effort;
  result.k = material.k;
  result.within_budget =
      !options.budget.microseconds || result.rows[chosen].microseconds <= *options.budget.microseconds;
  result.fit = fit.view().count;
  result.validation = validation.view().count;
  return result;
}

}  // namespace topksoftmax
