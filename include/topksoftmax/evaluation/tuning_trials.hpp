// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/evaluation/confidence.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"
#include "topksoftmax/evaluation/precision.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/evaluation/tune_options.hpp"
#include "topksoftmax/evaluation/tuning_plan.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/stopwatch.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Thrown where there is no time left.
struct OutOfTime {};

/// What a trial tells of its setting, and of those before and behind it.
enum class TuningVerdict : std::uint8_t {
  met,       ///< its precision is sure to reach the target
  missed,    ///< it is not
  hopeless,  ///< too slow, too large or impossible, whatever its precision, and so is all behind it
};

/// Measures settings on contexts that none of them has learned from, and keeps a list of them.
class TuningTrials {
 public:
  /// `row_confidence` is that of each bound. The contexts and the executor outlive this.
  TuningTrials(const SoftmaxLayer& layer, const Contexts& validation, const TuneOptions& options,
               double row_confidence, const Executor& executor);

  /// Tries the only setting of an axis, and times it whatever its precision. The first of all is exact.
  void try_standard(const TuningAxis& axis);

  /// Tries a setting. `built` is the model's backend, or null, and takes what is built now. One that at a
  /// glance takes much longer than the quickest eligible one so far is given up: its precision is not
  /// measured.
  TuningVerdict try_setting(const TuningAxis& axis, const TuningModel& model, const TuningEffort& effort,
                            std::shared_ptr<TopKSoftmax>& built);

  /// Of what was tried last: how sure its precision is, and its time at a glance, in that of the first.
  double last_bound() const { return trials_.back().row.lower_bound; }
  double last_glance() const { return trials_.back().glance; }

  /// Times those that are standard, and those that are eligible, against each other.
  void time(const StepProgress& progress);

  /// The fastest eligible one. One must be, and they must have been timed.
  std::size_t fastest() const;

  /// The rows, each with the reason why it was not taken.
  std::vector<TuneRow> explain(std::size_t chosen) const;

  const std::shared_ptr<TopKSoftmax>& backend(std::size_t i) const { return trials_[i].backend; }

 private:
  struct Trial {
    TuneRow row;
    std::shared_ptr<TopKSoftmax> backend;  ///< null unless it is to be timed
    double glance = 1.0;
  };

  /// Adds a trial and builds its backend into `built`, unless there is one: false if that is not possible.
  bool begin(const TuningAxis& axis, const TuningModel& model, const TuningEffort& effort,
             std::shared_ptr<TopKSoftmax>& built);
  /// Compares the last trial's speed with that of the quickest.
  void glance(const TopKSoftmax& backend);
  /// Finds the last trial's precision.
  void measure(const TopKSoftmax& backend);
  /// Keeps in mind which is the quickest, now that the last trial is eligible.
  void compare_with_quickest();

  bool meets_target(const TuneRow& row) const { return row.lower_bound >= target_.precision; }
  bool small_enough(const TuneRow& row) const;
  std::string reason(const TuneRow& row, const TuneRow& chosen) const;

  SoftmaxLayer layer_;
  Contexts validation_;
  TuneTarget target_;
  TuneBudget budget_;
  double row_confidence_;
  const Executor& executor_;
  GroundTruth truth_;
  double scan_seconds_;  ///< of one query of Fused, about
  std::vector<Trial> trials_;
  std::size_t quickest_ = 0;  ///< of the eligible trials, by their glances
};

/// How thorough a timing is.
struct Care {
  std::size_t rounds;
  std::size_t fewest;  ///< contexts
  std::size_t most;
  double seconds;  ///< what it would take if all were as slow as the full scan, and a tenth of it warming up
};

inline constexpr Care kTiming = {.rounds = 5, .fewest = 20, .most = 500, .seconds = 10.0};
inline constexpr Care kGlance = {.rounds = 3, .fewest = 5, .most = 100, .seconds = 0.05};
inline constexpr std::size_t kSlice = 100;

/// What takes so many times as long as the quickest, at a glance, is not going to be the fastest.
inline constexpr double kTooSlow = 1.5;

/// A number with so many digits behind the point.
inline std::string fixed(double value, int digits) {
  std::array<char, 400> text{};  // the largest double has 309 digits before the point
  const auto end = std::to_chars(text.begin(), text.end(), value, std::chars_format::fixed, digits).ptr;
  return {text.begin(), end};
}

/// Asks a backend for contexts, one at a time, with a workspace that stays warm.
class Asker {
 public:
  Asker(const TopKSoftmax& backend, const Contexts& contexts, const QueryOptions& options)
      : backend_(&backend), contexts_(contexts), options_(options) {}

  /// Asks for contexts first, …, first + count − 1 of `total` evenly spaced ones: the beginning of a text may
  /// be unlike the rest.
  void ask(std::size_t first, std::size_t count, std::size_t total) {
    for (std::size_t i = first; i < first + count; ++i) {
      const float* const h = contexts_.row(spaced_place(i, total, contexts_.count));
      backend_->query(h, contexts_.dim, options_, workspace_, answer_);
    }
  }

 private:
  const TopKSoftmax* backend_;
  Contexts contexts_;
  QueryOptions options_;
  Workspace workspace_;
  TopK answer_;
};

/// The time of a query that scans all of the layer.
inline double time_of_scan(const SoftmaxLayer& layer, const Contexts& contexts, std::size_t k) {
  const Fused fused(layer);
  Asker asker(fused, contexts, {.k = k});
  asker.ask(0, 1, 1);
  const SteadyClock::time_point start = SteadyClock::now();
  asker.ask(0, 1, 1);
  return std::max(seconds_since(start), 1e-7);
}

/// Times several against each other, on one thread.
inline std::vector<Timing> time_askers(std::vector<Asker>& askers, std::size_t contexts, double scan_seconds,
                                       const Care& care, const StepProgress& progress = {}) {
  const double most = care.seconds / (static_cast<double>(care.rounds * askers.size()) * scan_seconds);
  const auto wanted = static_cast<std::size_t>(
      std::clamp(most, static_cast<double>(care.fewest), static_cast<double>(care.most)));
  const std::size_t total = std::min(wanted, contexts);
  std::vector<TimedWork> works;
  for (Asker& asker : askers) {
    works.emplace_back(
        [&asker, total](std::size_t first, std::size_t items) { asker.ask(first, items, total); });
  }
  const PinnedThread pinned;
  return time_interleaved(works, total, {.rounds = care.rounds, .slice = kSlice, .progress = progress});
}

inline TuningTrials::TuningTrials(const SoftmaxLayer& layer, const Contexts& validation,
                                  const TuneOptions& options, double row_confidence, const Executor& executor)
    : layer_(layer),
      validation_(validation),
      target_(options.target),
      budget_(options.budget),
      row_confidence_(row_confidence),
      executor_(executor),
      truth_(find_ground_truth(layer, validation, options.target.k, 0, executor)),
      scan_seconds_(time_of_scan(layer, validation, truth_.k)) {}

inline bool TuningTrials::begin(const TuningAxis& axis, const TuningModel& model, const TuningEffort& effort,
                                std::shared_ptr<TopKSoftmax>& built) {
  TuneRow& row = trials_.emplace_back().row;
  row.backend = axis.backend;
  row.settings = model.settings;
  if (!model.settings.empty() && !effort.settings.empty()) row.settings += " ";
  row.settings += effort.settings;
  row.code = model.code;
  row.effort = effort.effort;
  row.exact = axis.exact;
  row.build_seconds = 0.0;
  if (built == nullptr) {
    const SteadyClock::time_point start = SteadyClock::now();
    try {
      built = model.build();
    } catch (const Error& error) {
      row.reason = error.what();
      return false;
    } catch (const OutOfTime&) {
      row.reason = "given up: the time was over";
      throw;
    }
    row.build_seconds = seconds_since(start);
  }
  row.index_bytes = built->index_bytes();
  return true;
}

inline void TuningTrials::glance(const TopKSoftmax& backend) {
  const Trial& quickest = trials_[quickest_];
  std::vector<Asker> askers;
  askers.emplace_back(backend, validation_, QueryOptions{.k = truth_.k, .effort = trials_.back().row.effort});
  askers.emplace_back(*quickest.backend, validation_,
                      QueryOptions{.k = truth_.k, .effort = quickest.row.effort});
  const std::vector<Timing> timings = time_askers(askers, validation_.count, scan_seconds_, kGlance);
  trials_.back().glance = quickest.glance * timings[0].seconds_per_item / timings[1].seconds_per_item;
}

inline void TuningTrials::measure(const TopKSoftmax& backend) {
  TuneRow& row = trials_.back().row;
  const std::vector<TopK> answers =
      answer_contexts(backend, validation_, {.k = truth_.k, .effort = row.effort}, 1, executor_);
  const Precision precision = measure_precision(layer_, validation_, truth_, answers);
  row.precision = precision.at.back();
  row.bytes_read = precision.bytes_read_mean;
  row.lower_bound = row.exact ? 1.0 : mean_lower_bound(row.precision, validation_.count, row_confidence_);
}

inline void TuningTrials::compare_with_quickest() {
  if (trials_.back().glance < trials_[quickest_].glance) quickest_ = trials_.size() - 1;
}

inline void TuningTrials::try_standard(const TuningAxis& axis) {
  const TuningModel& model = axis.models.front();
  std::shared_ptr<TopKSoftmax> built;
  if (!begin(axis, model, model.efforts.front(), built)) return;
  trials_.back().backend = built;
  measure(*built);
  if (trials_.size() == 1) return;
  glance(*built);
  if (meets_target(trials_.back().row) && small_enough(trials_.back().row)) compare_with_quickest();
}

inline TuningVerdict TuningTrials::try_setting(const TuningAxis& axis, const TuningModel& model,
                                               const TuningEffort& effort,
                                               std::shared_ptr<TopKSoftmax>& built) {
  if (!begin(axis, model, effort, built)) return TuningVerdict::hopeless;
  if (!small_enough(trials_.back().row)) return TuningVerdict::hopeless;
  glance(*built);
  const Trial& quickest = trials_[quickest_];
  Trial& trial = trials_.back();
  const double times = trial.glance / quickest.glance;
  if (times > kTooSlow) {
    trial.row.reason = "about " + fixed(times, 1) + "× the time of " + quickest.row.backend + " at a glance";
    return TuningVerdict::hopeless;
  }
  measure(*built);
  if (!meets_target(trial.row)) return TuningVerdict::missed;
  trial.backend = built;
  compare_with_quickest();
  return TuningVerdict::met;
}

inline void TuningTrials::time(const StepProgress& progress) {
  std::vector<Trial*> timed;
  for (Trial& trial : trials_) {
    if (trial.backend != nullptr) timed.push_back(&trial);
  }
  std::vector<Asker> askers;
  for (const Trial* trial : timed)
    askers.emplace_back(*trial->backend, validation_,
                        QueryOptions{.k = truth_.k, .effort = trial->row.effort});
  const std::vector<Timing> timings =
      time_askers(askers, validation_.count, scan_seconds_, kTiming, progress);
  for (std::size_t i = 0; i < timed.size(); ++i) {
    timed[i]->row.microseconds = 1e6 * timings[i].seconds_per_item;
    timed[i]->row.spread = timings[i].spread;
  }
}

inline bool TuningTrials::small_enough(const TuneRow& row) const {
  return !budget_.index_bytes || row.index_bytes <= *budget_.index_bytes;
}

inline std::size_t TuningTrials::fastest() const {
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    const TuneRow& row = trials_[i].row;
    if (trials_[i].backend == nullptr || !meets_target(row) || !small_enough(row)) continue;
    if (row.microseconds < least) {
      least = row.microseconds;
      best = i;
    }
  }
  return best;
}

inline std::string TuningTrials::reason(const TuneRow& row, const TuneRow& chosen) const {
  if (!row.reason.empty()) return row.reason;
  if (!small_enough(row)) {
    return "an index of more than " + fixed(static_cast<double>(*budget_.index_bytes) * 1e-6, 2) + " MB";
  }
  if (!meets_target(row)) {
    return target_.precision == 1.0
               ? "not exact by proof"
               : "only P@" + std::to_string(truth_.k) + " ≥ " + fixed(row.lower_bound, 4) + " is sure";
  }
  return fixed(row.microseconds / chosen.microseconds, 2) + "× the time of the one taken";
}

inline std::vector<TuneRow> TuningTrials::explain(std::size_t chosen) const {
  std::vector<TuneRow> rows;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    rows.push_back(trials_[i].row);
    if (i != chosen) rows.back().reason = reason(trials_[i].row, trials_[chosen].row);
  }
  return rows;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
