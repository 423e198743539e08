// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/tune.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "harness/backends/index_output.hpp"
#include "harness/command_line/shell_words.hpp"
#include "harness/command_line/usage_error.hpp"
#include "harness/command_line/validators.hpp"
#include "harness/files/output_file.hpp"
#include "harness/heads/head.hpp"
#include "harness/reports/notes.hpp"
#include "harness/reports/restlessness.hpp"
#include "harness/text/progress.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/evaluation/precision.hpp"
#include "topksoftmax/evaluation/tune.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/replace_file.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/registry/option_value.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

namespace topksoftmax::bench {
namespace {

struct Request {
  HeadSource head;
  std::string target = "p5=0.99";
  std::filesystem::path json;  ///< empty: none is written
  std::filesystem::path out;   ///< likewise
  TuneOptions options;
};

/// Reads "p5=0.99".
TuneTarget parse_target(const std::string& text) {
  const std::size_t equals = text.find('=');
  std::optional<std::size_t> k;
  std::optional<double> precision;
  if (equals != std::string::npos && (text.starts_with('p') || text.starts_with('P'))) {
    k = detail::number_of<std::size_t>(text.substr(1, equals - 1));
    precision = detail::number_of<double>(text.substr(equals + 1));
  }
  if (!k || !precision) {
    throw UsageError("--target is \"" + text + "\"; it must be of the form p5=0.99");
  }
  if (*k == 0) throw UsageError("--target " + text + ": k must be at least 1");
  if (!(*precision > 0.0 && *precision <= 1.0)) {
    throw UsageError("--target " + text + ": the precision must be above 0 and at most 1");
  }
  return {.k = *k, .precision = *precision};
}

std::string name_of_precision(const TuneResult& result) {
  return "P@" + std::to_string(result.k);
}

/// What asks the saved index, which holds the effort, as it was judged, in the words of a shell. The program
/// goes by the name that it was called by.
std::string ask_command(const Request& request, const TuneResult& result, const std::string& called) {
  std::vector<std::string> words = {called.substr(0, called.find(' ')), "ask", "--head",
                                    request.head.head.string()};
  const auto add = [&words](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--tensor", request.head.tensor);
  add("--bias", request.head.bias);
  add("--index", request.out.string());
  add("--k", std::to_string(result.k));
  return shell_words(words);
}

/// The options of a query, as C++ writes them.
std::string query_code(const TuneResult& result) {
  return "{.k = " + std::to_string(result.k) +
         (result.effort == 0 ? "}" : ", .effort = " + std::to_string(result.effort) + "}");
}

/// Over Fused, which is the first row.
double speedup_of(const TuneRow& row, const TuneResult& result) {
  return result.rows.front().microseconds / row.microseconds;
}

std::string note(const TuneRow& row, const std::string& reason) {
  return row.settings + (row.settings.empty() || reason.empty() ? "" : "; ") + reason;
}

/// Whether more contexts, all answered right, would let approximate backends take part.
bool lacks_contexts(const TuneOptions& options, const TuneResult& result) {
  return options.target.precision < 1.0 && result.provable < options.target.precision;
}

/// How many contexts it takes to have so many to judge on: where a fifth of the file is kept apart to measure
/// on, more than those that are divided here.
std::string contexts_needed(std::size_t judged, bool divided) {
  const std::size_t needed = judged * detail::kValidationShare;
  // Four fifths of the file are to learn from, rounded down.
  const std::size_t whole = (needed * 5 + 3) / 4;
  return std::to_string(needed) + " to learn from" +
         (divided ? " (" + std::to_string(whole) + " in a file whose last fifth is measured on)" : "");
}

/// How many more.
std::string contexts_lacking(const TuneOptions& options, const TuneResult& result, bool divided) {
  const std::size_t needed = result.validation_needed;
  return std::to_string(result.validation) + " judged contexts can prove " + name_of_precision(result) +
         " ≥ " + fixed(result.provable, 4) + " at most, so approximate backends were not searched; " +
         detail::option_text(options.target.precision) + " needs about " + std::to_string(needed) +
         (needed <= options.max_validation
              ? ", of " + contexts_needed(needed, divided)
              : ", and no more than " + std::to_string(options.max_validation) + " are judged");
}

/// What is to be known of the times.
std::vector<std::string> notes_of(const TuneResult& result) {
  double largest = 0.0;
  for (const TuneRow& row : result.rows) largest = std::fmax(largest, row.spread);
  return remarks_on_spread(largest);
}

void print(const Head& head, const TuneOptions& options, const TuneResult& result, std::ostream& out) {
  out << head.name << ": V = " << head.layer.vocab() << ", d = " << head.layer.dim() << "; "
      << name_of_precision(result) << " ≥ " << fixed(options.target.precision, 4) << " wanted; learned from "
      << result.fit << " contexts, judged on " << result.validation << " others\n"
      << (result.finished ? "" : "the time was over before all had been tried\n")
      << (lacks_contexts(options, result) ? contexts_lacking(options, result, head.divided) + "\n" : "");
  print_notes(notes_of(result), out);
  out << '\n';
  Table table({"   backend", "µs/query", "speedup", name_of_precision(result), "at least", "KB/query",
               "index MB", "build s", ""});
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const TuneRow& row = result.rows[i];
    const bool over_budget = i == result.chosen && !result.within_budget;
    table.add({(i == result.chosen ? "=> " : "   ") + row.backend, fixed(row.microseconds, 2),
               fixed(speedup_of(row, result), 2), fixed(row.precision, 4), fixed(row.lower_bound, 4),
               fixed(row.bytes_read * 1e-3, 1), fixed(static_cast<double>(row.index_bytes) * 1e-6, 2),
               fixed(row.build_seconds, 2), note(row, over_budget ? "over the budget" : row.reason)});
  }
  table.print(out);
  if (!result.within_budget) {
    out << "\nnone meets the target within " << detail::option_text(*options.budget.microseconds)
        << " µs; the fastest is taken all the same\n";
  }
  out << "\nauto head = " << result.row().code << ";  // ask it with " << query_code(result) << '\n';
}

/// The chosen one's precision on contexts that took no part in choosing it.
double test_precision(const SoftmaxLayer& layer, const RowMajorMatrix& contexts, const TuneResult& result) {
  const GroundTruth truth = find_ground_truth(layer, contexts, result.k, 0);
  return measure_precision(layer, contexts, truth, answer_contexts(*result.backend, contexts, result.query()))
      .at.back();
}

/// `tested`: test_precision(), where the head has contexts for it.
nlohmann::ordered_json to_json(const Head& head, const TuneOptions& options, const TuneResult& result,
                               std::optional<double> tested) {
  nlohmann::ordered_json json;
  json["head"] = {{"name", head.name}, {"vocab", head.layer.vocab()}, {"dim", head.layer.dim()}};
  json["target"] = {{"k", result.k}, {"precision", options.target.precision}};
  json["confidence"] = options.confidence;
  json["fit"] = result.fit;
  json["validation"] = result.validation;
  json["provable"] = result.provable;
  json["validation_needed"] = result.validation_needed;
  json["finished"] = result.finished;
  json["within_budget"] = result.within_budget;
  json["chosen"] = result.chosen;
  if (tested) {
    json["test"] = {{"contexts", head.test.rows()},
                    {"precision", *tested},
                    {"meets_target", *tested >= options.target.precision}};
  }
  json["notes"] = notes_of(result);
  json["rows"] = nlohmann::ordered_json::array();
  for (const TuneRow& row : result.rows) {  // what was not measured, NaN, is written as null
    json["rows"].push_back({{"backend", row.backend},
                            {"settings", row.settings},
                            {"code", row.code},
                            {"effort", row.effort},
                            {"exact", row.exact},
                            {"build_seconds", row.build_seconds},
                            {"index_bytes", row.index_bytes},
                            {"precision", row.precision},
                            {"lower_bound", row.lower_bound},
                            {"us_per_query", row.microseconds},
                            {"speedup", speedup_of(row, result)},
                            {"spread", row.spread},
                            {"bytes_per_query", row.bytes_read},
                            {"reason", row.reason}});
  }
  return json;
}

void run_tune(const Request& request, const Invocation& invocation) {
  Progress& progress = invocation.progress;
  std::ostream& out = text_output({request.json}, invocation);
  TuneOptions options = request.options;
  options.target = parse_target(request.target);
  check_distinct(std::array{NamedFile{"--json", request.json}, NamedFile{"--out", request.out}},
                 files_of(request.head));
  if (!request.json.empty()) check_output(request.json);
  if (!request.out.empty()) check_target(request.out);
  progress.show("reading " + request.head.head.string());
  const Head head = on_cache_lines(load_head(request.head));
  require_training_contexts(head);
  options.counts = head.counts;
  options.progress = [&progress](std::string_view step, double done) {
    progress.show(std::string(step), done);
  };
  const TuneResult result = tune(head.layer, head.train, options, invocation.registry);
  progress.clear();
  print(head, options, result, out);
  std::optional<double> tested;
  if (head.test.rows() > 0) {
    tested = test_precision(head.layer, head.test, result);
    out << name_of_precision(result) << " on the " << head.test.rows()
        << " test contexts: " << fixed(*tested, 4)
        << (*tested < options.target.precision ? ", below the target: they are unlike those judged on" : "")
        << '\n';
  }
  out.flush();
  try_all({[&] {
             if (!request.json.empty()) write_json(request.json, to_json(head, options, result, tested));
           },
           [&] {
             if (request.out.empty()) return;
             save_index(*result.backend, request.out, out);
             if (result.effort != 0) out << "it holds the effort " << result.effort << "; ";
             out << "load it with load_index() and ask it with {.k = " << result.k << "}, or\n"
                 << ask_command(request, result, invocation.command) << " --contexts FILE\n";
           }});
}

}  // namespace

Action declare_tune(CLI::App& app) {
  const auto request = std::make_shared<Request>();
  TuneOptions& options = request->options;
  declare_head(app, request->head);
  app.add_option("--target", request->target, "The least P@K that is to be expected; pK=1: proven exact")
      ->type_name("pK=P")
      ->capture_default_str();
  app.add_option("--confidence", options.confidence, "How sure that must be")
      ->check(number(above(0.0).and_at_most(1.0 - detail::kLeastDoubt)))
      ->type_name("C")
      ->capture_default_str();
  app.add_option_function<double>(
         "--max-us", [&options](double us) { options.budget.microseconds = us; },
         "Microseconds that a query may take; where all take longer, the fastest that meets the target is "
         "taken, and --out saves it, all the same")
      ->check(number(1e-9, 1e12))
      ->type_name("X");
  app.add_option_function<double>(
         "--max-index-mb",
         [&options](double mb) { options.budget.index_bytes = static_cast<std::size_t>(mb * 1e6); },
         "Megabytes that an index may have")
      ->check(number(0.0, 1e12))
      ->type_name("X");
  app.add_option("--max-seconds", options.max_seconds, "When to stop looking for better ones")
      ->check(number(0.0, std::numeric_limits<double>::infinity()))
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Decides which contexts are learned from")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--json", request->json, "Write the results to this file too; -: to standard output")
      ->check(file_name())
      ->type_name("OUT");
  app.add_option("--out", request->out, "Save the index of the one to take to this file")
      ->check(file_name())
      ->type_name("INDEX");
  return [request](const Invocation& invocation) { run_tune(*request, invocation); };
}

}  // namespace topksoftmax::bench
