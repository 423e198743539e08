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
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/decoding/draw_each.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::size_t kSlice = 100;
constexpr std::uint64_t kSeed = 1;

/// Log-probabilities are not asked for: who draws needs the token.
constexpr QueryOptions kQuery = {.probabilities = false};

/// One that draws.
class Drawer {
 public:
  Drawer(std::string name, std::shared_ptr<const TopKSoftmax> head, const SamplingOptions& options,
         const MeasureOptions& measure, const Executor& executor)
      : name_(std::move(name)), head_(std::move(head)), workspaces_(measure.threads), executor_(executor) {
    for (std::size_t i = 0; i < measure.batch; ++i) samplers_.emplace_back(options);
    for (Sampler& sampler : samplers_) requests_.push_back({&sampler, &random_, kQuery});
  }

  const std::string& name() const { return name_; }
  bool scans() const { return head_->exhaustive(); }

  /// Those after each of some contexts, until others are drawn.
  std::span<const SampledToken> draw(const Contexts& contexts) {
    tokens_.resize(contexts.count);
    const std::size_t together = samplers_.size();
    for (std::size_t first = 0; first < contexts.count; first += together) {
      const std::size_t count = std::min(together, contexts.count - first);
      if (together == 1) {
        tokens_[first] =
            samplers_[0].draw(*head_, {contexts.row(first), contexts.dim}, random_, kQuery, executor_);
      } else {
        draw_each(*head_, {contexts.row(first), count, contexts.dim, contexts.stride},
                  std::span(requests_).first(count), std::span(tokens_).subspan(first, count), workspaces_,
                  executor_);
      }
    }
    return tokens_;
  }

  std::size_t full_scans() const { return sum(&Sampler::full_scans); }
  std::size_t trials() const { return sum(&Sampler::trials); }

 private:
  std::size_t sum(std::size_t (Sampler::*of_one)() const) const {
    std::size_t all = 0;
    for (const Sampler& sampler : samplers_) all += (sampler.*of_one)();
    return all;
  }

  std::string name_;
  std::shared_ptr<const TopKSoftmax> head_;
  std::vector<Workspace> workspaces_;
  const Executor& executor_;
  std::vector<Sampler> samplers_ = {};
  RandomStream random_{kSeed};
  std::vector<DrawRequest> requests_ = {};
  std::vector<SampledToken> tokens_ = {};
};

bool scans(const std::unique_ptr<Drawer>& drawer) {
  return drawer->scans();
}

/// At least one of them takes the logits of all tokens.
std::vector<std::unique_ptr<Drawer>> make_drawers(const Head& head, std::span<const Choice> choices,
                                                  const SamplingOptions& options,
                                                  const MeasureOptions& measure, const Executor& executor,
                                                  Progress& progress) {
  std::vector<std::unique_ptr<Drawer>> drawers;
  for (const Choice& choice : choices) {
    drawers.push_back(std::make_unique<Drawer>(choice.backend->name, build_backend(choice, head, progress),
                                               options, measure, executor));
  }
  if (std::none_of(drawers.begin(), drawers.end(), scans)) {
    drawers.insert(drawers.begin(),
                   std::make_unique<Drawer>("fused", std::make_shared<const Fused>(head.layer), options,
                                            measure, executor));
  }
  return drawers;
}

/// The tokens that one draws, whose counts are those of just these draws then.
std::vector<TokenId> tokens_of(Drawer& drawer, const Contexts& contexts) {
  std::vector<TokenId> tokens;
  for (const SampledToken& token : drawer.draw(contexts)) tokens.push_back(token.id);
  return tokens;
}

}  // namespace

SamplingMeasurement measure_sampling(const Head& head, std::span<const Choice> choices,
                                     const SamplingOptions& options, const MeasureOptions& measure,
                                     Progress& progress) {
  const RowMajorMatrix chosen = detail::evenly_spaced(Contexts::of(head.test), measure.timed);
  const Contexts contexts = Contexts::of(chosen);
  const std::size_t count = contexts.count;
  const ThreadPool pool(measure.threads);
  const std::vector<std::unique_ptr<Drawer>> drawers =
      make_drawers(head, choices, options, measure, pool, progress);
  SamplingMeasurement measurement = {
      .options = options, .contexts = count, .threads = measure.threads, .batch = measure.batch};
  progress.show("drawing");
  Drawer& all = **std::find_if(drawers.begin(), drawers.end(), scans);
  const std::vector<TokenId> expected = tokens_of(all, contexts);
  const auto per_token = [count](std::size_t number) {
    return static_cast<double>(number) / static_cast<double>(count);
  };
  for (const auto& drawer : drawers) {
    const std::vector<TokenId> tokens = drawer.get() == &all ? expected : tokens_of(*drawer, contexts);
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i) different += tokens[i] != expected[i] ? 1U : 0U;
    measurement.rows.push_back({.backend = drawer->name(),
                                .scans_per_1000 = 1000.0 * per_token(drawer->full_scans()),
                                .trials_mean = per_token(drawer->trials()),
                                .different_share = per_token(different)});
  }

  std::vector<TimedWork> works;
  for (const auto& drawer : drawers) {
    works.emplace_back([&](std::size_t first, std::size_t number) {
      drawer->draw({contexts.row(first), number, contexts.dim, contexts.stride});
    });
  }
  const std::size_t slice = std::max<std::size_t>(kSlice / measure.batch, 1) * measure.batch;
  const TimedBesideReads timed =
      time_beside_reads(std::move(works), count, slice, head, measure, pool, progress);
  double fastest = 0.0;
  for (std::size_t i = 0; i < drawers.size(); ++i) {
    const double seconds = timed.timings[i].seconds_per_item;
    measurement.rows[i].us_per_token = 1e6 * seconds;
    if (!drawers[i]->scans() || (fastest > 0.0 && fastest <= seconds)) continue;
    fastest = seconds;
    measurement.reference = drawers[i]->name();
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
      << (measurement.threads == 1 ? "one thread" : std::to_string(measurement.threads) + " threads");
  if (measurement.batch > 1) out << ", batches of " << measurement.batch;
  out << "\ntemperature " << three_digits(options.temperature);
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
  json["batch"] = measurement.batch;
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
