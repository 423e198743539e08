// SPDX-License-Identifier: Apache-2.0
#include "harness/experiments/sampling.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>

#include "harness/backends/build_backend.hpp"
#include "harness/experiments/beside_reads.hpp"
#include "harness/reports/notes.hpp"
#include "harness/reports/report.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/decoding/draw_each.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/error.hpp"
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

constexpr std::size_t kMasks = 64;

/// What is drawn after.
struct Asked {
  Contexts contexts;
  std::vector<TokenMask> masks;  ///< of the contexts in turn; none: everything is allowed

  /// Log-probabilities are not asked for: who draws needs the token.
  QueryOptions query(std::size_t i) const {
    QueryOptions query = {.probabilities = false};
    if (!masks.empty()) query.allowed = masks[i % masks.size()];
    return query;
  }
};

/// Masks that allow so many tokens each, drawn by chance.
std::vector<TokenMask> make_masks(std::size_t allowed, std::size_t vocab) {
  if (allowed > vocab) {
    throw Error("--allowed " + std::to_string(allowed) + ": there are no more than " + std::to_string(vocab) +
                " tokens");
  }
  RandomStream random(kSeed);
  std::vector<TokenId> ids(vocab);
  std::iota(ids.begin(), ids.end(), TokenId{0});
  std::vector<TokenMask> masks;
  for (std::size_t m = 0; m < kMasks; ++m) {
    TokenMask& mask = masks.emplace_back(vocab);
    for (std::size_t i = 0; i < allowed; ++i) {
      std::swap(ids[i], ids[i + random.bits() % (vocab - i)]);
      mask.allow(ids[i]);
    }
  }
  return masks;
}

/// One that draws.
class Drawer {
 public:
  Drawer(std::string name, std::shared_ptr<const TopKSoftmax> head, const SamplingOptions& options,
         const MeasureOptions& measure, const Asked& asked, const Executor& executor)
      : name_(std::move(name)),
        head_(std::move(head)),
        asked_(asked),
        workspaces_(measure.threads),
        executor_(executor) {
    for (std::size_t i = 0; i < measure.batch; ++i) samplers_.emplace_back(options);
    for (Sampler& sampler : samplers_) requests_.push_back({&sampler, &random_, {}});
  }

  const std::string& name() const { return name_; }
  bool scans() const { return head_->exhaustive(); }

  /// The tokens after so many contexts, until others are drawn.
  std::span<const SampledToken> draw(std::size_t first, std::size_t count) {
    tokens_.resize(count);
    const std::size_t together = samplers_.size();
    for (std::size_t done = 0; done < count; done += together) {
      draw_batch(first + done, std::span(tokens_).subspan(done, std::min(together, count - done)));
    }
    return tokens_;
  }

  std::size_t full_scans() const { return sum(&Sampler::full_scans); }
  std::size_t trials() const { return sum(&Sampler::trials); }

 private:
  void draw_batch(std::size_t first, std::span<SampledToken> tokens) {
    const Contexts& all = asked_.contexts;
    if (samplers_.size() == 1) {
      tokens[0] =
          samplers_[0].draw(*head_, {all.row(first), all.dim}, random_, asked_.query(first), executor_);
      return;
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) requests_[i].query = asked_.query(first + i);
    draw_each(*head_, {all.row(first), tokens.size(), all.dim, all.stride},
              std::span(requests_).first(tokens.size()), tokens, workspaces_, executor_);
  }

  std::size_t sum(std::size_t (Sampler::*of_one)() const) const {
    std::size_t all = 0;
    for (const Sampler& sampler : samplers_) all += (sampler.*of_one)();
    return all;
  }

  std::string name_;
  std::shared_ptr<const TopKSoftmax> head_;
  const Asked& asked_;
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
                                                  const MeasureOptions& measure, const Asked& asked,
                                                  const Executor& executor, Progress& progress) {
  std::vector<std::unique_ptr<Drawer>> drawers;
  for (const Choice& choice : choices) {
    drawers.push_back(std::make_unique<Drawer>(choice.backend->name, build_backend(choice, head, progress),
                                               options, measure, asked, executor));
  }
  if (std::none_of(drawers.begin(), drawers.end(), scans)) {
    drawers.insert(drawers.begin(),
                   std::make_unique<Drawer>("fused", std::make_shared<const Fused>(head.layer), options,
                                            measure, asked, executor));
  }
  return drawers;
}

/// The tokens that one draws after all contexts, whose counts are those of just these draws then.
std::vector<TokenId> tokens_of(Drawer& drawer, std::size_t count) {
  std::vector<TokenId> tokens;
  for (const SampledToken& token : drawer.draw(0, count)) tokens.push_back(token.id);
  return tokens;
}

}  // namespace

SamplingMeasurement measure_sampling(const Head& head, std::span<const Choice> choices,
                                     const Drawing& drawing, const MeasureOptions& measure,
                                     Progress& progress) {
  const RowMajorMatrix chosen = detail::evenly_spaced(Contexts::of(head.test), measure.timed);
  Asked asked = {.contexts = Contexts::of(chosen), .masks = {}};
  if (drawing.allowed != 0) asked.masks = make_masks(drawing.allowed, head.layer.vocab());
  const std::size_t count = asked.contexts.count;
  const ThreadPool pool(measure.threads);
  const std::vector<std::unique_ptr<Drawer>> drawers =
      make_drawers(head, choices, drawing.options, measure, asked, pool, progress);
  SamplingMeasurement measurement = {
      .drawing = drawing, .contexts = count, .threads = measure.threads, .batch = measure.batch};
  progress.show("drawing");
  Drawer& all = **std::find_if(drawers.begin(), drawers.end(), scans);
  const std::vector<TokenId> expected = tokens_of(all, count);
  const auto per_token = [count](std::size_t number) {
    return static_cast<double>(number) / static_cast<double>(count);
  };
  for (const auto& drawer : drawers) {
    const std::vector<TokenId> tokens = drawer.get() == &all ? expected : tokens_of(*drawer, count);
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i) different += tokens[i] != expected[i] ? 1U : 0U;
    measurement.rows.push_back({.backend = drawer->name(),
                                .scans_per_1000 = 1000.0 * per_token(drawer->full_scans()),
                                .trials_mean = per_token(drawer->trials()),
                                .different_share = per_token(different)});
  }

  std::vector<TimedWork> works;
  for (const auto& drawer : drawers) {
    works.emplace_back([&](std::size_t first, std::size_t number) { drawer->draw(first, number); });
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
  const SamplingOptions& options = measurement.drawing.options;
  print_beside_reads(machine, measurement.read_gb_s, head, out);
  out << "; a token drawn after " << measurement.contexts << " of " << head.test.rows() << " test contexts, "
      << (measurement.threads == 1 ? "one thread" : std::to_string(measurement.threads) + " threads");
  if (measurement.batch > 1) out << ", batches of " << measurement.batch;
  out << "\ntemperature " << three_digits(options.temperature);
  if (options.top_k > 0) out << ", top-k " << options.top_k;
  if (options.top_p < 1.0) out << ", top-p " << three_digits(options.top_p);
  if (options.min_p > 0.0) out << ", min-p " << fixed(options.min_p, 3);
  if (options.typical_p < 1.0) out << ", typical-p " << three_digits(options.typical_p);
  if (options.top_n_sigma > 0.0) out << ", top-n-sigma " << three_digits(options.top_n_sigma);
  if (options.log_z_error > 0.0) out << ", log Z within " << fixed(options.log_z_error, 3) << " at 99.9 %";
  if (measurement.drawing.allowed > 0) out << ", of " << measurement.drawing.allowed << " allowed tokens";
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
  const SamplingOptions& options = measurement.drawing.options;
  for (const SamplingRow& row : measurement.rows) {
    json["sampling"].push_back({{"backend", row.backend},
                                {"temperature", options.temperature},
                                {"top_k", options.top_k},
                                {"top_p", options.top_p},
                                {"min_p", options.min_p},
                                {"typical_p", options.typical_p},
                                {"top_n_sigma", options.top_n_sigma},
                                {"log_z_error", options.log_z_error},
                                {"allowed", measurement.drawing.allowed},
                                {"us_per_token", row.us_per_token},
                                {"speedup", row.speedup},
                                {"scans_per_1000", row.scans_per_1000},
                                {"trials_mean", row.trials_mean},
                                {"different_share", row.different_share}});
  }
  return json;
}

}  // namespace topksoftmax::bench
