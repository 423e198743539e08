// SPDX-License-Identifier: Apache-2.0
#include "evaluation/tuning_trials.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "topksoftmax/error.hpp"
#include "topksoftmax/evaluation/confidence.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRounds = 5;
constexpr std::size_t kSlice = 100;
constexpr std::size_t kFewestTimed = 20;
constexpr std::size_t kMostTimed = 500;

/// What the timing would take if all were as slow as the full scan, and a tenth of it warming up.
constexpr double kTimingSeconds = 10.0;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A number with so many digits behind the point.
std::string fixed(double value, int digits) {
  std::array<char, 400> text{};  // the largest double has 309 digits before the point
  const auto end = std::to_chars(text.begin(), text.end(), value, std::chars_format::fixed, digits).ptr;
  return {text.begin(), end};
}

/// Asks a backend for contexts, one at a time, with a workspace that stays warm.
class Asker {
 public:
  Asker(const TopKSoftmax& backend, const Contexts& contexts, const QueryOptions& options)
      : backend_(&backend), contexts_(contexts), options_(options) {}

  void ask(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i)
      backend_->query(contexts_.row(i), contexts_.dim, options_, workspace_, answer_);
  }

 private:
  const TopKSoftmax* backend_;
  Contexts contexts_;
  QueryOptions options_;
  Workspace workspace_;
  TopK answer_;
};

/// So many contexts that timing `works` backends takes no longer than it may.
std::size_t contexts_to_time(const SoftmaxLayer& layer, const Contexts& contexts, std::size_t k,
                             std::size_t works) {
  const Fused fused(layer);
  Asker asker(fused, contexts, {.k = k});
  asker.ask(0, 1);
  const Clock::time_point start = Clock::now();
  asker.ask(0, 1);
  const double seconds = std::max(seconds_since(start), 1e-7);
  const double most = kTimingSeconds / (static_cast<double>(kRounds * works) * seconds);
  const auto wanted = static_cast<std::size_t>(
      std::clamp(most, static_cast<double>(kFewestTimed), static_cast<double>(kMostTimed)));
  return std::min(wanted, contexts.count);
}

}  // namespace

TuningTrials::TuningTrials(const SoftmaxLayer& layer, const Contexts& validation, const TuneOptions& options,
                           double row_confidence)
    : layer_(layer),
      validation_(validation),
      target_(options.target),
      budget_(options.budget),
      row_confidence_(row_confidence),
      truth_(find_ground_truth(layer, validation.data, validation.count, validation.dim, validation.stride,
                               options.target.k, 0)) {}

bool TuningTrials::measure(const TuningAxis& axis, const TuningPoint& point,
                           std::shared_ptr<const TopKSoftmax>& built) {
  TuneRow& row = trials_.emplace_back().row;
  row.backend = axis.backend;
  row.settings = point.settings;
  row.code = point.code;
  row.effort = point.effort;
  row.exact = axis.exact;
  if (built == nullptr) {
    const Clock::time_point start = Clock::now();
    try {
      built = (*point.build)();
    } catch (const Error& error) {
      row.reason = error.what();
      return false;
    } catch (const OutOfTime&) {
      row.reason = "given up: the time was over";
      throw;
    }
    row.build_seconds = seconds_since(start);
  } else {
    row.build_seconds = 0.0;
  }
  row.index_bytes = built->index_bytes();
  const std::vector<TopK> answers =
      answer_contexts(*built, validation_.data, validation_.count, validation_.dim, validation_.stride,
                      {.k = truth_.k, .effort = point.effort}, 1);
  const Precision precision =
      measure_precision(layer_, validation_.data, validation_.count, validation_.stride, truth_, answers);
  row.precision = precision.at.back();
  row.bytes_read = precision.bytes_read_mean;
  row.lower_bound = axis.exact ? 1.0 : mean_lower_bound(row.precision, validation_.count, row_confidence_);
  return true;
}

void TuningTrials::try_standard(const TuningAxis& axis) {
  std::shared_ptr<const TopKSoftmax> built;
  if (measure(axis, axis.points.front(), built)) trials_.back().backend = std::move(built);
}

void TuningTrials::search(const TuningAxis& axis, const std::function<void()>& check_time) {
  std::shared_ptr<const TuningBuild> build;
  std::shared_ptr<const TopKSoftmax> built;
  std::size_t low = 0;
  std::size_t high = axis.points.size();
  while (low < high) {
    check_time();
    const std::size_t middle = low + (high - low) / 2;
    const TuningPoint& point = axis.points[middle];
    if (point.build != build) built = nullptr;
    build = point.build;
    if (!measure(axis, point, built)) return;
    Trial& trial = trials_.back();
    const bool met = meets_target(trial.row);
    if (met && small_enough(trial.row)) trial.backend = built;
    (met ? high : low) = met ? middle : middle + 1;
  }
}

void TuningTrials::time(const std::function<void(double)>& progress) {
  std::vector<Trial*> timed;
  for (Trial& trial : trials_) {
    if (trial.backend != nullptr) timed.push_back(&trial);
  }
  const std::size_t count = contexts_to_time(layer_, validation_, truth_.k, timed.size());
  std::vector<Asker> askers;
  for (const Trial* trial : timed)
    askers.emplace_back(*trial->backend, validation_,
                        QueryOptions{.k = truth_.k, .effort = trial->row.effort});
  std::vector<TimedWork> works;
  for (Asker& asker : askers)
    works.emplace_back([&asker](std::size_t first, std::size_t items) { asker.ask(first, items); });
  const PinnedThread pinned;
  const std::vector<Timing> timings =
      time_interleaved(works, count, {.rounds = kRounds, .slice = kSlice, .progress = progress});
  for (std::size_t i = 0; i < timed.size(); ++i)
    timed[i]->row.microseconds = 1e6 * timings[i].seconds_per_item;
}

bool TuningTrials::small_enough(const TuneRow& row) const {
  return !budget_.index_bytes || row.index_bytes <= *budget_.index_bytes;
}

std::size_t TuningTrials::fastest() const {
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    const auto& [row, backend] = trials_[i];
    if (backend == nullptr || !meets_target(row) || !small_enough(row)) continue;
    if (row.microseconds < least) {
      least = row.microseconds;
      best = i;
    }
  }
  return best;
}

std::string TuningTrials::reason(const TuneRow& row, const TuneRow& chosen) const {
  if (!row.reason.empty()) return row.reason;
  if (!meets_target(row)) {
    return target_.precision == 1.0
               ? "not exact by proof"
               : "only P@" + std::to_string(truth_.k) + " ≥ " + fixed(row.lower_bound, 4) + " is sure";
  }
  if (!small_enough(row)) {
    return "an index of more than " + fixed(static_cast<double>(*budget_.index_bytes) * 1e-6, 2) + " MB";
  }
  return fixed(row.microseconds / chosen.microseconds, 2) + "× the time of the one taken";
}

std::vector<TuneRow> TuningTrials::explain(std::size_t chosen) const {
  std::vector<TuneRow> rows;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    rows.push_back(trials_[i].row);
    if (i != chosen) rows.back().reason = reason(trials_[i].row, trials_[chosen].row);
  }
  return rows;
}

}  // namespace topksoftmax
