// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/measure_request.hpp"

#include <array>
#include <memory>
#include <ostream>
#include <sstream>
#include <utility>

#include "harness/backends/choice.hpp"
#include "harness/backends/copied_layer.hpp"
#include "harness/experiments/ablation.hpp"
#include "harness/experiments/cursors.hpp"
#include "harness/experiments/language_model/request.hpp"
#include "harness/experiments/ranks.hpp"
#include "harness/files/output_file.hpp"
#include "harness/heads/head.hpp"
#include "harness/measuring/machine.hpp"
#include "harness/measuring/measurer.hpp"
#include "harness/measuring/sweep.hpp"
#include "harness/reports/html.hpp"
#include "harness/reports/report.hpp"
#include "harness/reports/scoreboard.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax::bench {
namespace {

/// Builds the chosen backends and measures them. Of "all", those that cannot be built for this head are left
/// out, with a note.
Measurement measure_once(const Measurer& measurer, const MeasureRequest& request,
                         std::span<const Choice> choices) {
  std::vector<Contestant> contestants;
  std::vector<std::string> notes;
  for (const Choice& choice : choices) {
    try {
      contestants.push_back(measurer.build(choice));
    } catch (const Error& error) {
      if (request.backends != "all") throw;
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

bool is_language_model(const std::filesystem::path& path) {
  try {
    return SafetensorsFile::open(path).contains("lstm.weight_ih_l0");
  } catch (const Error&) {
    return false;
  }
}

void run_experiment(const MeasureRequest& request, std::span<const Choice> choices, const Head& head,
                    std::ostream& out, Progress& progress) {
  const examples::LstmModel model(request.head.head);
  const Head learning = language_model_head(model, head, progress);
  const LanguageModelRequest experiment = {
      .model = model, .head = learning, .choices = choices, .text = request.text, .progress = progress};
  std::ostringstream table;
  nlohmann::ordered_json json = {{"machine", to_json(describe_machine())}, {"head", to_json(head)}};
  switch (request.what) {
    case Measurand::decode:
      json.update(run_decode(experiment, table));
      break;
    case Measurand::perplexity:
      json.update(run_perplexity(experiment, table));
      break;
    default:
      json.update(run_batching(experiment, table));
  }
  progress.clear();
  out << head.name << ": " << table.str();
  out.flush();
  if (!request.json.empty()) write_json(request.json, json);
}

/// Prints a measurement, and writes it where the request wants JSON.
template <class Measured>
void publish(const MeasureRequest& request, const Head& head, const Measured& measured,
             void (*print)(const Machine&, const Head&, const Measured&, std::ostream&),
             nlohmann::ordered_json (*to_json)(const Machine&, const Head&, const Measured&),
             std::ostream& out, Progress& progress) {
  const Machine machine = describe_machine();
  progress.clear();
  print(machine, head, measured, out);
  out.flush();
  if (!request.json.empty()) write_json(request.json, to_json(machine, head, measured));
}

void run_ablation(const Registry& registry, const MeasureRequest& request, const Head& head,
                  std::ostream& out, Progress& progress) {
  const Ablation& ablation = find_ablation(request.ablation);
  std::ostringstream table;
  ablation.run({.registry = registry,
                .head = head,
                .settings = request.settings,
                .measure = request.measure,
                .progress = progress},
               table);
  progress.clear();
  out << head.name << ": " << ablation.summary << "\n\n" << table.str();
}

/// The table, or the sweep.
void run_table(const MeasureRequest& request, std::span<const Choice> choices, const Head& head,
               const std::string& command, std::ostream& out, Progress& progress) {
  const Machine machine = describe_machine();
  const bool sweeps = request.what == Measurand::sweep;
  Measurer measurer(head, request.measure, progress);
  const Measurement measurement =
      sweeps ? sweep(measurer, choices) : measure_once(measurer, request, choices);
  progress.clear();
  if (sweeps) {
    print(machine, measurer, pareto_rows(measurement, request.measure.ks), out);
    out << '\n';
    print_scoreboard(measurement, out);
  } else {
    print(machine, measurer, measurement, out);
  }
  out.flush();
  try_all({[&] {
             if (!request.json.empty()) write_json(request.json, to_json(machine, measurer, measurement));
           },
           [&] {
             if (!request.html.empty()) {
               write_output(request.html, to_html(machine, measurer, measurement, command));
             }
           }});
}

void run_on_ranks(const MeasureRequest& request, std::span<const Choice> choices, const Head& head,
                  std::ostream& out, Progress& progress) {
  const Ranks ranks;
  Progress silent(nullptr);
  const RanksMeasurement measurement =
      ranks.measure(head, choices, request.measure, ranks.first() ? progress : silent);
  if (ranks.first()) publish(request, head, measurement, print_ranks, ranks_to_json, out, progress);
}

}  // namespace

const char* option_of(Measurand what) {
  switch (what) {
    case Measurand::decode:
      return "--decode";
    case Measurand::perplexity:
      return "--perplexity";
    default:
      return "--batching";
  }
}

void measure(const MeasureRequest& request, const Invocation& invocation) {
  const auto& [registry, command, standard_output, silence, progress] = invocation;
  std::ostream& out = text_output({request.json, request.html}, invocation);
  std::vector<Choice> choices = choose_backends(registry, request.backends, request.settings);
  if (!request.copied_as.empty()) {
    choices.push_back(
        {.backend = std::make_shared<const BackendDescription>(describe_copied_layer(request.copied_as)),
         .settings = {}});
  }
  if (request.what == Measurand::sweep) check_sweep(choices);
  for (Choice& choice : choices) choice = suited_to(request.measure.largest_k(), std::move(choice));
  const std::array<NamedFile, 2> outputs = {{{"--json", request.json}, {"--html", request.html}}};
  std::vector<NamedFile> inputs = files_of(request.head);
  inputs.push_back({"--text", request.text});
  check_distinct(outputs, inputs);
  for (const NamedFile& output : outputs) {
    if (!output.path.empty()) check_output(output.path);
  }
  progress.show("reading " + request.head.head.string());
  const Head head = on_cache_lines(load_head(request.head));
  if (takes_language_model(request.what) && !is_language_model(request.head.head)) {
    throw Error(head.file + ": " + option_of(request.what) + " needs a language model file (lstm.*)");
  }
  require_test_contexts(head);
  switch (request.what) {
    case Measurand::table:
    case Measurand::sweep:
      return run_table(request, choices, head, command, out, progress);
    case Measurand::ablation:
      return run_ablation(registry, request, head, out, progress);
    case Measurand::sampling:
      return publish(request, head,
                     measure_sampling(head, choices, request.drawn_by, request.measure, progress),
                     print_sampling, sampling_to_json, out, progress);
    case Measurand::cursor:
      return publish(request, head,
                     measure_cursors(head, choices, request.cursor_tokens, request.measure, progress),
                     print_cursors, cursors_to_json, out, progress);
    case Measurand::ranks:
      return run_on_ranks(request, choices, head, out, progress);
    case Measurand::decode:
    case Measurand::perplexity:
    case Measurand::batching:
      return run_experiment(request, choices, head, out, progress);
  }
}

}  // namespace topksoftmax::bench
