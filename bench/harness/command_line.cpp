// SPDX-License-Identifier: Apache-2.0
#include "harness/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "harness/ablation.hpp"
#include "harness/copied_layer.hpp"
#include "harness/usage_error.hpp"
#include "harness/validators.hpp"
#include "topksoftmax/version.hpp"

namespace topksoftmax::bench {
namespace {

/// The first line of a message, without the full stop that some end with.
std::string first_line(const std::string& message) {
  return message.substr(0, message.find('\n'));
}

/// What a sweep measures less often than a single table, for it has many more rows.
constexpr std::size_t kSweepTimed = 500;
constexpr std::size_t kSweepRounds = 5;

/// More have no use on any machine, and each takes memory.
constexpr std::size_t kMostThreads = 4096;

/// The values of k that the papers compare systems by: boards, plots and ablations need them.
constexpr std::array<std::size_t, 2> kBoardKs = {1, 5};

std::string ablation_names() {
  std::string names;
  for (const Ablation& ablation : ablations()) names += (names.empty() ? "" : ", ") + ablation.name;
  return names;
}

/// What tokens are drawn by.
constexpr std::array<const char*, 4> kDrawnBy = {"--temperature", "--top-p", "--min-p", "--log-z-error"};

/// The backends that an experiment is made with where none are named.
std::string default_backends(LanguageModelExperiment experiment) {
  switch (experiment) {
    case LanguageModelExperiment::perplexity:
      return "svd,adaptive,fgd,l2s";
    case LanguageModelExperiment::batching:
      return "fused,l2s";
    default:
      return "exact,fused,l2s,certified";
  }
}

/// The library's, as people write it.
std::string version() {
  return std::to_string(TOPKSOFTMAX_VERSION_MAJOR) + "." + std::to_string(TOPKSOFTMAX_VERSION_MINOR) + "." +
         std::to_string(TOPKSOFTMAX_VERSION_PATCH);
}

/// Throws UsageError where an option was given that something has no use for.
void refuse(const CLI::App& app, const std::string& by, std::initializer_list<const char*> options) {
  for (const char* const option : options) {
    if (app.count(option) > 0) throw UsageError(by + " goes without " + option);
  }
}

/// Throws UsageError where any option stands before a command, which has its own.
void refuse_before_command(const CLI::App& app) {
  std::vector<const CLI::App*> groups =
      app.get_subcommands([](const CLI::App* one) { return one->get_name().empty(); });
  groups.push_back(&app);
  for (const CLI::App* const group : groups) {
    for (const CLI::Option* const option : group->get_options()) {
      if (option->count() == 0) continue;
      throw UsageError("options of " + app.get_subcommands().front()->get_name() +
                       " stand behind it: " + option->get_name() + " stands before");
    }
  }
}

/// Throws UsageError for options that cannot be drawn with.
void check_usable(const SamplingOptions& options) {
  if (options.temperature == 0.0) throw UsageError("--temperature: 0 is greedy, which draws nothing");
  try {
    topksoftmax::check(options);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

void check(const CLI::App& app, CommandLine& line) {
  if (line.list) return refuse(app, "--list", {"--json", "--html", "--sweep", "--ablation"});
  if (!line.text.empty() && line.experiment != LanguageModelExperiment::perplexity) {
    throw UsageError("--text goes with --perplexity");
  }
  if (line.experiment != LanguageModelExperiment::none) {
    refuse(app, "an experiment on a language model",
           {"--sweep", "--ablation", "--html", "--as", "--k", "--queries", "--timed", "--rounds", "--threads",
            "--batch"});
  }
  if (!line.ablation.empty()) {
    find_ablation(line.ablation);
    refuse(app, "--ablation", {"--sweep", "--backends", "--as", "--json", "--html"});
  }
  if (line.sampling) {
    refuse(app, "--sampling",
           {"--sweep", "--ablation", "--html", "--as", "--k", "--queries", "--threads", "--batch", "--decode",
            "--perplexity", "--batching"});
    check_usable(line.drawn_by);
  } else {
    for (const char* const option : kDrawnBy) {
      if (app.count(option) > 0) throw UsageError(std::string(option) + " goes with --sampling");
    }
  }
  if (line.ranks) {
    refuse(app, "--ranks",
           {"--sweep", "--ablation", "--html", "--as", "--queries", "--threads", "--sampling", "--decode",
            "--perplexity", "--batching"});
  }
  if (line.head.empty()) throw UsageError("--head FILE is needed");
  if (line.measure.batch > 1 && line.measure.threads > line.measure.batch) {
    throw UsageError(
        "--threads " + std::to_string(line.measure.threads) + " needs --batch " +
        std::to_string(line.measure.threads) +
        " or more, as threads share the contexts of a batch, or --batch 1, where they share each query");
  }
  std::vector<std::size_t>& ks = line.measure.ks;
  if (line.sweep || !line.html.empty() || !line.ablation.empty())
    ks.insert(ks.end(), kBoardKs.begin(), kBoardKs.end());
  std::sort(ks.begin(), ks.end());
  ks.erase(std::unique(ks.begin(), ks.end()), ks.end());
}

/// What is measured, how long, and where the results go.
void declare_measuring(CLI::App& app, CommandLine& line) {
  MeasureOptions& measure = line.measure;
  app.add_option("--head", line.head, "Head file (safetensors: weight, bias, contexts.train, contexts.test)")
      ->type_name("FILE");
  app.add_option("--backends", line.backends, "Names separated by commas, or all")
      ->type_name("NAMES")
      ->capture_default_str();
  app.add_option("--k", measure.ks, "The k of P@k, separated by commas; the largest is asked for")
      ->delimiter(',')
      ->check(count())
      ->type_name("K")
      ->capture_default_str();
  app.add_option("--queries", measure.queries, "Test contexts to take; all if not given")
      ->check(count())
      ->type_name("N");
  app.add_option("--timed", measure.timed, "How many of them to time")
      ->check(count())
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--rounds", measure.rounds, "Times that each is timed; medians over the rounds count")
      ->check(count())
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--set", line.settings, "A backend's parameter, as l2s.clusters=100; may be repeated")
      ->type_name("BACKEND.PARAMETER=VALUE");
  app.add_option(
         "--as", line.copied_as,
         "Measure the fused softmax over a copy of the layer in this type too, as engines store it: " +
             std::string(copied_types))
      ->type_name("TYPE");
  app.add_option("--threads", measure.threads,
                 "Threads that answer a query together, or share the contexts of a batch")
      ->check(whole_number(1, kMostThreads))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--batch", measure.batch, "Contexts that are asked together")
      ->check(count())
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--json", line.json, "Write the results to this file too")
      ->check(file_name())
      ->type_name("OUT");
  app.add_option("--html", line.html, "Write a report with plots to this file too")
      ->check(file_name())
      ->type_name("OUT");
}

/// What is done instead of one table.
void declare_experiments(CLI::App& app, CommandLine& line) {
  app.add_flag(
      "--sweep", line.sweep,
      "Measure each backend at many settings of its own trade-off, print those that no other beats and "
      "the fastest at each precision");
  app.add_option("--ablation", line.ablation,
                 "Repeat an experiment of the papers instead: " + ablation_names())
      ->type_name("NAME");
  auto* const with_model =
      app.add_option_group("Language model", "On a language model file whole instead (lstm.*, vocab.utf8)");
  const auto add = [&](const char* name, LanguageModelExperiment experiment, const char* help) {
    with_model->add_flag_callback(
        name, [&line, experiment] { line.experiment = experiment; }, help);
  };
  add("--decode", LanguageModelExperiment::decode,
      "Tokens a second, end to end, of greedy, beam, sampled and speculative decoding");
  add("--perplexity", LanguageModelExperiment::perplexity,
      "Perplexity with each backend, by its learned log Z or with low-rank logits outside of its candidates");
  add("--batching", LanguageModelExperiment::batching, "Mini-, maxi- and top-up batching of sentences");
  with_model->require_option(0, 1);
  app.add_option("--text", line.text,
                 "File whose test.tokens --perplexity scores; without it, text that the model writes")
      ->type_name("FILE");
}

void declare_sampling(CLI::App& app, CommandLine& line) {
  app.add_flag("--sampling", line.sampling,
               "Draw tokens from exactly the layer's distribution instead, one after each timed context");
  const auto add = [&app](const char* name, double& value, const char* help) {
    app.add_option(name, value, help)->type_name("X")->capture_default_str();
  };
  add(kDrawnBy[0], line.drawn_by.temperature, "Of --sampling: what logits are divided by");
  add(kDrawnBy[1], line.drawn_by.top_p, "Of --sampling: the share of the nucleus; 1: all tokens");
  add(kDrawnBy[2], line.drawn_by.min_p,
      "Of --sampling: the least probability that stays, as a share of the best one's");
  add(kDrawnBy[3], line.drawn_by.log_z_error,
      "Of --sampling: what the log Z of a nucleus may be off but for one draw in 1,000; 0: exact");
}

void declare_ranks(CLI::App& app, CommandLine& line) {
  app.add_flag(
      "--ranks", line.ranks,
      "Under mpirun: measure backends over as many slices of the vocabulary as there are ranks instead, "
      "against each over the whole of it");
}

/// Arguments as a shell would read them.
std::string command_of(const std::string& program, std::span<const char* const> arguments) {
  std::string command = program;
  for (const std::string_view argument : arguments) {
    const bool plain =
        !argument.empty() && argument.find_first_of(" \t\n'\"\\$`*?[](){}<>|&;#~!") == std::string_view::npos;
    command += ' ';
    if (plain) {
      command += argument;
      continue;
    }
    command += '\'';
    for (const char c : argument) command += c == '\'' ? std::string("'\\''") : std::string(1, c);
    command += '\'';
  }
  return command;
}

void declare_commands(CLI::App& app, CommandLine& line) {
  app.require_subcommand(0, 1);
  for (const Command& command : commands()) {
    CLI::App* const options = app.add_subcommand(command.name, command.summary);
    const Action action = command.declare(*options);
    options->callback([&line, action] { line.action = action; });
  }
}

/// Defaults that depend on what else was asked for.
void complete(const CLI::App& app, CommandLine& line) {
  if (app.count("--backends") == 0) {
    if (line.experiment != LanguageModelExperiment::none) line.backends = default_backends(line.experiment);
    if (line.sampling || line.ranks) line.backends = "fused,certified";
  }
  if (line.sweep && app.count("--timed") == 0) line.measure.timed = kSweepTimed;
  if (line.sweep && app.count("--rounds") == 0) line.measure.rounds = kSweepRounds;
}

}  // namespace

CommandLine parse_command_line(const std::string& program, int argc, const char* const* argv) {
  CommandLine line;
  line.command =
      command_of(program, std::span(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0));
  CLI::App app(
      "Measures backends of TopKSoftmax against each other on a head file: trains them on its "
      "contexts.train, "
      "times them\nand finds their precision on its contexts.test. Errors of log-probabilities (median, "
      "99th percentile, worst) are over the tokens answered to 1,000 of these.");
  app.name(program);
  declare_measuring(app, line);
  declare_experiments(app, line);
  declare_sampling(app, line);
  declare_ranks(app, line);
  app.add_flag("--list", line.list, "Show the backends and their parameters");
  app.set_version_flag("--version", program + " " + version(), "Show the version");
  declare_commands(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
    return line;
  } catch (const CLI::CallForVersion& call) {
    line.answer = std::string(call.what()) + "\n";
    return line;
  } catch (const CLI::ParseError& error) {
    throw UsageError(first_line(error.what()));
  }
  if (line.action) {
    refuse_before_command(app);
    return line;
  }
  complete(app, line);
  check(app, line);
  return line;
}

}  // namespace topksoftmax::bench
