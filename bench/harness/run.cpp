// SPDX-License-Identifier: Apache-2.0
#include "harness/run.hpp"

#include <array>
#include <memory>
#include <ostream>
#include <sstream>

#include "harness/ablation.hpp"
#include "harness/choice.hpp"
#include "harness/copied_layer.hpp"
#include "harness/head.hpp"
#include "harness/html.hpp"
#include "harness/language_model/request.hpp"
#include "harness/machine.hpp"
#include "harness/measurer.hpp"
#include "harness/output_file.hpp"
#include "harness/ranks.hpp"
#include "harness/report.hpp"
#include "harness/sampling.hpp"
#include "harness/scoreboard.hpp"
#include "harness/sweep.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {
namespace {

/// Builds the chosen backends and measures them. Of "all", those that cannot be built for this head are left
/// out, with a note.
Measurement measure_once(const Measurer& measurer, const CommandLine& line,
                         const std::vector<Choice>& choices) {
  std::vector<Contestant> contestants;
  std::vector<std::string> notes;
  for (const Choice& choice : choices) {
    try {
      contestants.push_back(measurer.build(choice));
    } catch (const Error& error) {
      if (line.backends != "all") throw;
      notes.push_back(std::string("without ") + error.what());
    }
  }
  Measurement measurement = measurer.measure(contestants);
  measurement.notes = std::move(notes);
  return measurement;
}

void print(const Machine& machine, const Measurer& measurer, const Measurement& measurement,
           std::ostream& out) {
  print_heading(machine, measurer, measurement, out);
  out << '\n';
  print_rows(measurer, measurement, out);
}

void run_experiment(const CommandLine& line, std::span<const Choice> choices, const Head& head,
                    std::ostream& out, Progress& progress) {
  const examples::LstmModel model(line.head);
  const Head learning = language_model_head(model, head, progress);
  const LanguageModelRequest request = {
      .model = model, .head = learning, .choices = choices, .text = line.text, .progress = progress};
  std::ostringstream table;
  nlohmann::ordered_json json = {{"machine", to_json(describe_machine())}, {"head", to_json(head)}};
  switch (line.experiment) {
    case LanguageModelExperiment::decode:
      json["decoding"] = run_decode(request, table);
      break;
    case LanguageModelExperiment::perplexity:
      json["perplexity"] = run_perplexity(request, table);
      break;
    default:
      json["batching"] = run_batching(request, table);
  }
  progress.clear();
  out << head.name << ": " << table.str();
  out.flush();
  if (!line.json.empty()) write_json(line.json, json);
}

void run_sampling(const Machine& machine, const CommandLine& line, std::span<const Choice> choices,
                  const Head& head, std::ostream& out, Progress& progress) {
  const SamplingMeasurement measurement =
      measure_sampling(head, choices, line.drawn_by, line.measure, progress);
  progress.clear();
  print_sampling(machine, head, measurement, out);
  out.flush();
  if (!line.json.empty()) write_json(line.json, sampling_to_json(machine, head, measurement));
}

void run_on_ranks(const CommandLine& line, std::span<const Choice> choices, const Head& head,
                  std::ostream& out, Progress& progress) {
  const Ranks ranks;
  Progress silent(nullptr);
  const RanksMeasurement measurement =
      ranks.measure(head, choices, line.measure, ranks.first() ? progress : silent);
  if (!ranks.first()) return;
  const Machine machine = describe_machine();
  progress.clear();
  print_ranks(machine, head, measurement, out);
  out.flush();
  if (!line.json.empty()) write_json(line.json, ranks_to_json(machine, head, measurement));
}

}  // namespace

void run(const Registry& registry, const CommandLine& line, std::ostream& out, Progress& progress) {
  if (line.action) return line.action(registry, out, progress);
  if (!line.answer.empty() || line.list) {
    out << (line.list ? describe_backends(registry) : line.answer);
    return;
  }
  std::vector<Choice> choices = choose_backends(registry, line.backends, line.settings);
  if (!line.copied_as.empty()) {
    choices.push_back(
        {.backend = std::make_shared<const BackendDescription>(describe_copied_layer(line.copied_as)),
         .settings = {}});
  }
  if (line.sweep) check_sweep(choices);
  const std::array<Output, 2> outputs = {{{"--json", line.json}, {"--html", line.html}}};
  check_distinct(outputs, line.head);
  for (const Output& output : outputs) {
    if (!output.path.empty()) check_output(output.path);
  }
  progress.show("reading " + line.head.string());
  const Head head = load_stored_head(line.head);
  require_test_contexts(head);
  if (line.ranks) return run_on_ranks(line, choices, head, out, progress);
  if (line.experiment != LanguageModelExperiment::none)
    return run_experiment(line, choices, head, out, progress);
  if (!line.ablation.empty()) {
    const Ablation& ablation = find_ablation(line.ablation);
    std::ostringstream table;
    ablation.run({.registry = registry,
                  .head = head,
                  .settings = line.settings,
                  .measure = line.measure,
                  .progress = progress},
                 table);
    progress.clear();
    out << head.name << ": " << ablation.summary << "\n\n" << table.str();
    return;
  }
  const Machine machine = describe_machine();
  if (line.sampling) return run_sampling(machine, line, choices, head, out, progress);
  Measurer measurer(head, line.measure, progress);
  const Measurement measurement =
      line.sweep ? sweep(measurer, choices) : measure_once(measurer, line, choices);
  progress.clear();
  if (line.sweep) {
    print(machine, measurer, pareto_rows(measurement, line.measure.ks), out);
    out << '\n';
    print_scoreboard(measurement, out);
  } else {
    print(machine, measurer, measurement, out);
  }
  out.flush();
  if (!line.json.empty()) write_json(line.json, to_json(machine, measurer, measurement));
  if (!line.html.empty()) write_output(line.html, to_html(machine, measurer, measurement, line.command));
}

}  // namespace topksoftmax::bench
