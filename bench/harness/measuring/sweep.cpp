// SPDX-License-Identifier: Apache-2.0
#include "harness/measuring/sweep.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/command_line/usage_error.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/evaluation/pareto_front.hpp"

namespace topksoftmax::bench {
namespace {

/// Every combination of what is fixed when a backend is built, on top of the settings chosen.
std::vector<Settings> builds_of(const Choice& choice, const Measurer& measurer) {
  std::vector<Settings> all = {choice.settings};
  for (const OptionAxis& axis : choice.backend->axes) {
    if (axis.effort) continue;
    std::vector<Settings> extended;
    for (const Settings& settings : all) {
      for (const std::size_t value : axis.values(measurer.head().layer, measurer.k())) {
        extended.push_back(settings);
        extended.back()[axis.option] = std::to_string(value);
      }
    }
    all = std::move(extended);
  }
  return all;
}

/// The points that one built backend serves: one for each effort, if queries can vary that.
std::vector<Contestant> efforts_of(const Contestant& built, const Measurer& measurer) {
  const std::vector<OptionAxis>& axes = built.backend->axes;
  const auto axis = std::find_if(axes.begin(), axes.end(),
                                 [](const OptionAxis& one) { return static_cast<bool>(one.effort); });
  if (axis == axes.end()) return {built};
  std::vector<Contestant> points;
  for (const std::size_t value : axis->values(measurer.head().layer, measurer.k())) {
    points.push_back(built);
    points.back().settings[axis->option] = std::to_string(value);
    points.back().effort = axis->effort(value, built.backend->values(points.back().settings));
  }
  return points;
}

/// A build of a system that its head does not allow.
struct Refusal {
  std::string reason;
  Settings settings;
};

/// A note for each, or a single one for what stands in the way of all builds.
void note_refusals(const std::vector<Refusal>& refusals, bool of_all, std::vector<std::string>& notes) {
  const auto is_like_the_first = [&](const Refusal& one) { return one.reason == refusals.front().reason; };
  if (of_all && refusals.size() > 1 && std::all_of(refusals.begin(), refusals.end(), is_like_the_first)) {
    notes.push_back("without " + refusals.front().reason);
    return;
  }
  for (const auto& [reason, settings] : refusals) {
    notes.push_back("without " + reason + (settings.empty() ? "" : " (" + describe(settings) + ")"));
  }
}

/// Every point of a system.
std::vector<Contestant> points_of(const Measurer& measurer, const Choice& choice,
                                  std::vector<std::string>& notes) {
  std::vector<Contestant> points;
  std::vector<Refusal> refusals;
  for (const Settings& settings : builds_of(choice, measurer)) {
    try {
      const Contestant built = measurer.build({.backend = choice.backend, .settings = settings});
      for (Contestant& point : efforts_of(built, measurer)) points.push_back(std::move(point));
    } catch (const Error& error) {
      refusals.push_back({.reason = error.what(), .settings = settings});
    }
  }
  note_refusals(refusals, points.empty(), notes);
  return points;
}

/// Moves one measurement's rows to another.
void append(Measurement& to, Measurement&& from) {
  if (to.reference.empty()) {
    to.reference = from.reference;
    to.reference_timing = from.reference_timing;
    to.read_gb_s = from.read_gb_s;
  }
  std::move(from.rows.begin(), from.rows.end(), std::back_inserter(to.rows));
}

}  // namespace

void check_sweep(std::span<const Choice> choices) {
  for (const Choice& choice : choices) {
    for (const OptionAxis& axis : choice.backend->axes) {
      if (!choice.settings.contains(axis.option)) continue;
      const std::string parameter = choice.backend->name + "." + axis.option;
      throw UsageError("--sweep varies " + parameter + " itself, and cannot be combined with --set " +
                       parameter);
    }
  }
}

Measurement sweep(Measurer& measurer, std::span<const Choice> choices) {
  Measurement swept;
  swept.notes.emplace_back(
      "each backend's settings were timed beside the reference anew, so speedups are not the ratios of the "
      "µs columns");
  // The exact ones first, together: the fastest of them is what all others are compared with.
  std::vector<Contestant> exact;
  for (const Choice& choice : choices) {
    if (choice.backend->traits.scans_all) exact.push_back(measurer.build(choice));
  }
  if (!exact.empty()) {
    append(swept, measurer.measure(exact));
    for (const Contestant& contestant : exact) {
      if (contestant.backend->name == swept.reference) measurer.compare_with(contestant);
    }
  }
  for (const Choice& choice : choices) {
    if (choice.backend->traits.scans_all) continue;
    const std::vector<Contestant> points = points_of(measurer, choice, swept.notes);
    if (!points.empty()) append(swept, measurer.measure(points));
  }
  return swept;
}

Measurement pareto_rows(const Measurement& swept, std::span<const std::size_t> ks) {
  Measurement kept = swept;
  kept.rows.clear();
  for (std::size_t begin = 0; begin < swept.rows.size();) {
    std::size_t end = begin;
    while (end < swept.rows.size() && swept.rows[end].backend == swept.rows[begin].backend) ++end;
    std::set<std::size_t> front;
    for (const std::size_t k : ks) {
      std::vector<TradeOff> points;
      for (std::size_t i = begin; i < end; ++i) {
        points.push_back({.precision = swept.rows[i].precision_at(k), .speed = swept.rows[i].speedup});
      }
      for (const std::size_t i : pareto_front(points)) front.insert(begin + i);
    }
    std::vector<std::size_t> order(front.begin(), front.end());
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return swept.rows[a].speedup > swept.rows[b].speedup; });
    for (const std::size_t i : order) kept.rows.push_back(swept.rows[i]);
    begin = end;
  }
  return kept;
}

}  // namespace topksoftmax::bench
