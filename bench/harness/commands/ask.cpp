// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/ask.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/backends/build_backend.hpp"
#include "harness/backends/choice.hpp"
#include "harness/backends/index_output.hpp"
#include "harness/command_line/threads_option.hpp"
#include "harness/command_line/validators.hpp"
#include "harness/files/output_file.hpp"
#include "harness/heads/context_stream.hpp"
#include "harness/heads/head.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"

namespace topksoftmax::bench {
namespace {

struct Request {
  HeadSource head;
  std::filesystem::path learn;  ///< contexts that a backend is built from; empty: those of the head
  std::filesystem::path index;  ///< empty: a backend is built
  std::string backend = "fused";
  std::vector<std::string> settings;
  std::filesystem::path contexts = "-";
  std::filesystem::path json;  ///< empty: lines are printed
  QueryOptions query = {.k = 5};
  std::size_t batch = 1;
  std::size_t threads = 1;
};

/// Standard input may be redirected from a file.
std::vector<NamedFile> files_read(const Request& request) {
  std::vector<NamedFile> files = files_of(request.head);
  files.push_back({"--contexts", request.contexts == "-" ? "/dev/stdin" : request.contexts});
  files.push_back({"--learn", request.learn});
  files.push_back({"--index", request.index});
  return files;
}

std::unique_ptr<TopKSoftmax> backend_of_rows(const Request& request, const Head& head,
                                             const Invocation& invocation) {
  const auto check = [&](std::string_view name) {
    if (request.query.effort != 0) check_effort(invocation.registry, name);
  };
  if (!request.index.empty()) {
    std::unique_ptr<TopKSoftmax> loaded = load_index_for(head.layer, request.index, invocation.registry);
    check(loaded->name());
    return loaded;
  }
  Choice choice = choose_backend(invocation.registry, request.backend, request.settings);
  check(choice.backend->name);
  return build_backend(suited_to(request.query.k, std::move(choice)), head, invocation.progress);
}

/// The backend that is asked: it speaks of the model's tokens.
std::unique_ptr<TopKSoftmax> backend_of(const Request& request, const Head& head,
                                        const Invocation& invocation) {
  std::unique_ptr<TopKSoftmax> backend = backend_of_rows(request, head, invocation);
  if (head.tokens.empty() || backend->row_map() != nullptr) return backend;
  const auto vocab = static_cast<std::size_t>(head.tokens.back()) + 1;
  try {
    return MappedVocabulary::wrap(std::move(backend), head.tokens, vocab);
  } catch (const Error& error) {
    throw Error(head.file + ": " + error.what());  // what is wrong is the file's d2t
  }
}

/// Tokens with their log-probabilities, best first: "id log-probability", tabs between them.
void print_line(const TopK& answer, std::ostream& out) {
  for (std::size_t i = 0; i < answer.size(); ++i) {
    out << (i == 0 ? "" : "\t") << answer.ids[i] << ' ' << answer.log_prob(i);
  }
  out << '\n';
}

/// As JSON has it.
std::string_view name_of(Normalizer normalizer) {
  switch (normalizer) {
    case Normalizer::exact:
      return "exact";
    case Normalizer::candidates:
      return "candidates";
    case Normalizer::low_rank:
      return "low_rank";
    case Normalizer::interval:
      return "interval";
    case Normalizer::learned:
      return "learned";
    default:
      return "none";
  }
}

/// What log Z is where log-probabilities are estimates; empty where they are exact.
std::string_view estimate_of(Normalizer normalizer) {
  switch (normalizer) {
    case Normalizer::candidates:
      return "counts the candidates alone, so they are too high";
    case Normalizer::low_rank:
      return "counts most tokens by an approximate logit";
    case Normalizer::interval:
      return "is estimated within a proven interval, which --json shows";
    case Normalizer::learned:
      return "counts what contexts have taught of the other tokens";
    default:
      return {};
  }
}

nlohmann::ordered_json to_json(const TopK& answer) {
  nlohmann::ordered_json json = {{"ids", answer.ids}, {"log_probs", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < answer.size(); ++i) json["log_probs"].push_back(answer.log_prob(i));
  json["log_z"] = answer.log_z;
  json["normalizer"] = name_of(answer.normalizer);
  if (answer.normalizer == Normalizer::interval) {
    json["log_z_interval"] = {answer.log_z_low, answer.log_z_high};
  }
  json["certified"] = answer.certified;
  json["confidence"] = answer.confidence;
  return json;
}

/// Answers contexts as they come, and prints each answer at once: whoever writes the contexts may wait for
/// it. Lines do not tell how exact they are: where log-probabilities are estimates, standard error does,
/// once.
void answer_all(const Request& request, const TopKSoftmax& backend, ContextStream& contexts,
                std::ostream& out) {
  std::vector<Workspace> workspaces(request.threads);
  std::vector<TopK> answers(request.batch);
  const auto dim = backend.layer().dim();
  std::size_t answered = 0;
  bool told = !request.json.empty();
  for (RowMajorMatrix H = contexts.next(request.batch); H.rows() > 0; H = contexts.next(request.batch)) {
    const auto count = static_cast<std::size_t>(H.rows());
    try {
      if (request.batch == 1) {
        backend.query(std::span(H.data(), dim), request.query, workspaces, answers[0]);
      } else {
        backend.query_batch(H.data(), count, dim, dim, request.query, workspaces,
                            std::span(answers).first(count));
      }
    } catch (const std::invalid_argument& error) {
      throw Error("context " + std::to_string(answered + 1) +
                  (count > 1 ? " to " + std::to_string(answered + count) : "") + ": " + error.what());
    }
    for (const TopK& answer : std::span(answers).first(count)) {
      if (const std::string_view estimate = estimate_of(answer.normalizer); !told && !estimate.empty()) {
        std::cerr << "log-probabilities are estimates: log Z " << estimate << '\n';
        told = true;
      }
      if (request.json.empty()) {
        print_line(answer, out);
      } else {
        out << to_json(answer).dump() << '\n';
      }
    }
    out.flush();
    if (!out) return;  // nobody reads what else would be answered; the tool's end says so
    answered += count;
  }
}

void run_ask(const Request& request, const Invocation& invocation) {
  check_threads(request.threads, request.batch);
  const bool to_file = !request.json.empty() && request.json != "-";
  check_distinct(std::array{NamedFile{"--json", request.json}}, files_read(request));
  if (to_file) check_output(request.json);
  invocation.progress.show("reading " + request.head.head.string());
  HeadSource source = request.head;
  source.contexts = request.learn;
  const Head head = load_head(source);
  const std::unique_ptr<TopKSoftmax> backend = backend_of(request, head, invocation);
  invocation.progress.clear();
  if (request.contexts == "-" && isatty(STDIN_FILENO) != 0) {
    std::cerr << "contexts of " << head.layer.dim() << " numbers, a line each:\n";
  }
  ContextStream contexts(request.contexts, std::cin, head.layer);
  if (!to_file) return answer_all(request, *backend, contexts, invocation.out);
  std::ostringstream lines;
  answer_all(request, *backend, contexts, lines);
  write_output(request.json, lines.str());
}

}  // namespace

Action declare_ask(CLI::App& app) {
  const auto request = std::make_shared<Request>();
  declare_layer(app, request->head);
  CLI::Option* const index =
      app.add_option("--index", request->index, "An index of the head's layer, that build or tune has saved")
          ->check(file_name())
          ->type_name("INDEX");
  app.add_option("--backend", request->backend, "Build this backend instead; list shows them")
      ->type_name("NAME")
      ->excludes(index)
      ->capture_default_str();
  app.add_option("--set", request->settings, "A parameter, as l2s.clusters=100; may be repeated")
      ->type_name("BACKEND.PARAMETER=VALUE")
      ->excludes(index);
  app.add_option("--learn", request->learn, "Contexts that the backend learns from, where the head has none")
      ->check(file_name())
      ->type_name("FILE")
      ->excludes(index);
  app.add_option(
         "--contexts", request->contexts,
         "Contexts to answer: .npy, .npz, .safetensors, or text with a context a line; -: standard input")
      ->check(file_name())
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--k", request->query.k, "Tokens wanted")
      ->check(count())
      ->type_name("K")
      ->capture_default_str();
  app.add_option(
         "--effort", request->query.effort,
         "How hard the backend looks, where it has an effort; 0: as the index holds it, or as it was built")
      ->check(whole_number(0, QueryOptions::full_effort))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--batch", request->batch, "Contexts that are asked together")
      ->check(count())
      ->type_name("N")
      ->capture_default_str();
  add_threads(app, request->threads);
  app.add_option("--json", request->json,
                 "Write an object of JSON for each context to this file; -: print them instead of lines")
      ->check(file_name())
      ->type_name("OUT");
  return [request](const Invocation& invocation) { run_ask(*request, invocation); };
}

}  // namespace topksoftmax::bench
