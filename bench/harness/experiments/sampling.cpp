// SPDX-License-Identifier: Apache-2.0
#include "harness/experiments/sampling.hpp"

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "harness/backends/build_backend.hpp"
#include "harness/experiments/beside_reads.hpp"
#include "harness/reports/notes.hpp"
#include "harness/reports/report.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::size_t kSlice = 100;
constexpr std::uint64_t kSeed = 1;

/// Log-probabilities are not asked for: who draws needs the token.
constexpr QueryOptions kQuery = {.probabilities = false};

/// One that draws.
struct Drawer {
  std::string name;
  std::shared_ptr<const TopKSoftmax> head;
  Sampler sampler;
  const Executor* executor;
  RandomStream random{kSeed};

  TokenId draw(const RowMajorMatrix& contexts, std::size_t i) {
    const float* const h = contexts.row(static_cast<Eigen::Index>(i)).data();
    return sampler.draw(*head, {h, head->layer().dim()}, random, kQuery, *executor).id;
  }
};

/// At least one of them takes the logits of all tokens.
std::vector<Drawer> make_drawers(const Head& head, std::span<const Choice> choices,
                                 const SamplingOptions& options, const Executor& executor,
                                 Progress& progress) {
  std::vector<Drawer> drawers;
  for (const Choice& choice : choices) {
    drawers.push_back(
        {choice.backend->name, build_backend(choice, head, progress), Sampler(options), &executor});
  }
  const auto scans = [](const Drawer& drawer) { return drawer.head->exhaustive(); };
  if (std::none_of(drawers.begin(), drawers.end(), scans)) {
    drawers.insert(drawers.begin(),
                   {"fused", std::make_shared<const Fused>(head.layer), Sampler(options), &executor});
  }
  return drawers;
}

/// The tokens that one draws, whose counts are those of just these draws then.
std::vector<TokenId> tokens_of(Drawer& drawer, const RowMajorMatrix& contexts) {
  std::vector<TokenId> tokens;
  const auto count = static_cast<std::size_t>(contexts.rows());
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(drawer.draw(contexts, i));
  return tokens;
}

}  // namespace

SamplingMeasurement measure_sampling(const Head& head, std::span<const Choice> choices,
                                     const SamplingOptions& options, const MeasureOptions& measure,
                                     Progress& progress) {
  const RowMajorMatrix contexts = detail::evenly_spaced(Contexts::of(head.test), measure.timed);
  const auto count = static_cast<std::size_t>(contexts.rows());
  const ThreadPool pool(measure.threads);
  std::vector<Drawer> drawers = make_drawers(head, choices, options, pool, progress);
  SamplingMeasurement measurement = {.options = options, .contexts = count, .threads = measure.threads};
  progress.show("drawing");
  const auto scans = [](const Drawer& drawer) { return drawer.head->exhaustive(); };
  Drawer& all = *std::find_if(drawers.begin(), drawers.end(), scans);
  const std::vector<TokenId> expected = tokens_of(all, contexts);
  const auto per_token = [count](std::size_t number) {
    return static_cast<double>(number) / static_cast<double>(count);
  };
  for (Drawer& drawer : drawers) {
    const std::vector<TokenId> tokens = &drawer == &all ? expected : tokens_of(drawer, contexts);
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i) different += tokens[i] != expected[i] ? 1U : 0U;
    measurement.rows.push_back({.backend = drawer.name,
                                .scans_per_1000 = 1000.0 * per_token(drawer.sampler.full_scans()),
                                .trials_mean = per_token(drawer.sampler.trials()),
                                .different_share = per_token(different)});
  }

  std::vector<TimedWork> works;
  for (Drawer& drawer : drawers) {
    works.emplace_back([&](std::size_t first, std::size_t number) {
      for (std::size_t i = first; i < first + number; ++i) drawer.draw(contexts, i);
    });
  }
  const TimedBesideReads timed =
      time_beside_reads(std::move(works), count, kSlice, head, measure, pool, progress);
  double fastest = 0.0;
  for (std::size_t i = 0; i < drawers.size(); ++i) {
    const double seconds = timed.timings[i].seconds_per_item;
    measurement.rows[i].us_per_token = 1e6 * seconds;
    if (!drawers[i].head->exhaustive() || (fastest > 0.0 && fastest <= seconds)) continue;
    fastest = seconds;
    measurement.reference = drawers[i].name;
  }
  measurement.reference_us = 1e6 * fastest;
  for (SamplingRow& row : measurement.rows) row.speedup = measurement.reference_us / row.us_per_token;
  measurement.read_gb_s = timed.read_gb_s;
  measurement.notes = timed.notes;
  return measurement;
}

void print_sampling(const Machine& machine, const Head& head, const SamplingMeasurement& measurement,
                    std::ostream& out) {
  const SamplingOptions& options = measurement.options;
  print_beside_reads(machine, measurement.read_gb_s, head, out);
  out << "; a token drawn after " << measurement.contexts << " of " << head.test.rows() << " test contexts, "
      << (measurement.threads == 1 ? "one thread" : std::to_string(measurement.threads) + " threads")
      << "\ntemperature " << three_digits(options.temperature);
  if (options.top_p < 1.0) out << ", top-p " << three_digits(options.top_p);
  if (options.min_p > 0.0) out << ", min-p " << fixed(options.min_p, 3);
  if (options.typical_p < 1.0) out << ", typical-p " << three_digits(options.typical_p);
  if (options.top_n_sigma > 0.0) out << ", top-n-sigma " << three_digits(options.top_n_sigma);
  if (options.log_z_error > 0.0) out << ", log Z within " << fixed(options.log_z_error, 3) << " at 99.9 %";
  out << "; 1.0 is " << measurement.reference << "\n";
  print_notes(measurement.notes, out);
  out << '\n';
  Table table({"backend", "µs/token", "speedup", "scans per 1,000", "tokens tried"});
  for (const SamplingRow& row : measurement.rows) {
    table.add({row.backend, three_digits(row.us_per_token), three_digits(row.speedup),
               fixed(row.scans_per_1000, 0), fixed(row.trials_mean, 1)});
  }
  table.print(out);
  for (const SamplingRow& row : measurement.rows) {
    if (row.different_share == 0.0) continue;
    out << '\n'
        << row.backend << " drew another token than from all logits after "
        << fixed(100.0 * row.different_share, 2) << " % of the contexts\n";
  }
}

nlohmann::ordered_json sampling_to_json(const Machine& machine, const Head& head,
                                        const SamplingMeasurement& measurement) {
  nlohmann::ordered_json json;
  json["machine"] = to_json(machine, measurement.read_gb_s);
  json["head"] = to_json(head);
  json["contexts"] = measurement.contexts;
  json["threads"] = measurement.threads;
  json["notes"] = measurement.notes;
  json["reference"] = {{"backend", measurement.reference}, {"us_per_token", measurement.reference_us}};
  json["sampling"] = nlohmann::ordered_json::array();
  for (const SamplingRow& row : measurement.rows) {
    json["sampling"].push_back({{"backend", row.backend},
                                {"temperature", measurement.options.temperature},
                                {"top_p", measurement.options.top_p},
                                {"min_p", measurement.options.min_p},
                                {"typical_p", measurement.options.typical_p},
                                {"top_n_sigma", measurement.options.top_n_sigma},
                                {"log_z_error", measurement.options.log_z_error},
                                {"us_per_token", row.us_per_token},
                                {"speedup", row.speedup},
                                {"scans_per_1000", row.scans_per_1000},
                                {"trials_mean", row.trials_mean},
                                {"different_share", row.different_share}});
  }
  return json;
}

}  // namespace topksoftmax::bench
