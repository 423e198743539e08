// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/measure.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "harness/backends/choice.hpp"
#include "harness/backends/copied_layer.hpp"
#include "harness/command_line/threads_option.hpp"
#include "harness/command_line/usage_error.hpp"
#include "harness/command_line/validators.hpp"
#include "harness/commands/measure_request.hpp"
#include "harness/experiments/ablation.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/registry/joined.hpp"

namespace topksoftmax::bench {
namespace {

/// What a sweep measures less often than a single table, for it has many more rows.
constexpr std::size_t kSweepTimed = 500;
constexpr std::size_t kSweepRounds = 5;

/// The values of k that the papers compare systems by: boards, plots and ablations need them.
constexpr std::array<std::size_t, 2> kBoardKs = {1, 5};

/// What tokens are drawn by.
constexpr std::array<const char*, 8> kDrawnBy = {"--temperature", "--top-p",       "--min-p", "--typical-p",
                                                 "--top-n-sigma", "--log-z-error", "--top-k", "--allowed"};

/// The backends that are measured where none are named.
std::string default_backends(Measurand what) {
  switch (what) {
    case Measurand::sampling:
    case Measurand::cursor:
    case Measurand::ranks:
      return "fused,certified";
    case Measurand::decode:
      return "exact,fused,l2s,certified";
    case Measurand::perplexity:
      return "svd,adaptive,fgd,l2s,certified";
    case Measurand::batching:
      return "fused,l2s";
    default:
      return "all";
  }
}

/// Throws UsageError where an option was given that something has no use for.
void refuse(const CLI::App& app, const std::string& by, const std::vector<const char*>& options) {
  for (const char* const option : options) {
    if (app.count(option) > 0) throw UsageError(by + " cannot be combined with " + option);
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

/// Throws UsageError where more than one thing is to be measured.
void check_single(const CLI::App& app) {
  constexpr std::array<const char*, 8> kMeasurands = {
      "--ablation", "--ranks", "--cursor", "--sampling", "--decode", "--perplexity", "--batching", "--sweep"};
  const char* given = nullptr;
  for (const char* const option : kMeasurands) {
    if (app.count(option) == 0) continue;
    if (given != nullptr) refuse(app, given, {option});
    given = option;
  }
}

/// Throws UsageError for options that what is measured has no use for.
void check_sense(const CLI::App& app, const MeasureRequest& request) {
  check_single(app);
  switch (request.what) {
    case Measurand::ablation:
      refuse(app, "--ablation", {"--backends", "--as", "--json", "--html"});
      return refuse(app, "--ablation " + request.ablation, find_ablation(request.ablation).unused);
    case Measurand::sampling:
      refuse(app, "--sampling", {"--html", "--as", "--k", "--queries"});
      return check_usable(request.drawn_by.options);
    case Measurand::cursor:
      return refuse(app, "--cursor", {"--html", "--as", "--k", "--queries", "--threads", "--batch"});
    case Measurand::ranks:
      return refuse(app, "--ranks", {"--html", "--as", "--queries", "--threads"});
    case Measurand::decode:
    case Measurand::perplexity:
    case Measurand::batching:
      return refuse(app, option_of(request.what),
                    {"--html", "--as", "--k", "--queries", "--timed", "--rounds", "--threads", "--batch"});
    default:
      return;
  }
}

void check(const CLI::App& app, MeasureRequest& request) {
  if (!request.text.empty() && request.what != Measurand::perplexity) {
    throw UsageError("--text needs --perplexity");
  }
  check_sense(app, request);
  for (const char* const option : kDrawnBy) {
    if (app.count(option) > 0 && request.what != Measurand::sampling) {
      throw UsageError(std::string(option) + " needs --sampling");
    }
  }
  check_threads(request.measure.threads, request.measure.batch,
                ", or --batch 1, where they share each query");
  std::vector<std::size_t>& ks = request.measure.ks;
  const bool has_boards = request.what == Measurand::sweep || request.what == Measurand::ablation;
  if (has_boards || !request.html.empty()) ks.insert(ks.end(), kBoardKs.begin(), kBoardKs.end());
  std::sort(ks.begin(), ks.end());
  ks.erase(std::unique(ks.begin(), ks.end()), ks.end());
}

/// Throws UsageError for settings of backends that are not measured. An ablation chooses its own.
void check_settings(const MeasureRequest& request, const Registry& registry) {
  if (request.what == Measurand::ablation) return;
  check_all_chosen(choose_backends(registry, request.backends, request.settings), request.settings);
}

/// What is measured, how long, and where the results go.
void declare_measuring(CLI::App& app, MeasureRequest& request) {
  MeasureOptions& measure = request.measure;
  declare_head(app, request.head);
  app.add_option("--backends", request.backends, "Names separated by commas, or all")
      ->type_name("NAMES")
      ->capture_default_str();
  app.add_option("--k", measure.ks,
                 "The k of P@k, separated by commas; the largest is asked for and built for")
      ->delimiter(',')
      ->check(count())
      ->type_name("K")
      ->capture_default_str();
  app.add_option("--queries", measure.queries, "Test contexts to take; all if not given")
      ->check(count())
      ->type_name("N");
  app.add_option("--timed", measure.timed,
                 "How many of them to time; with --sweep " + std::to_string(kSweepTimed) + ", if not given")
      ->check(count())
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--rounds", measure.rounds,
                 "Times that each is timed; medians over the rounds count; with --sweep " +
                     std::to_string(kSweepRounds) + ", if not given")
      ->check(count())
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--set", request.settings, "A backend's parameter, as l2s.clusters=100; may be repeated")
      ->type_name("BACKEND.PARAMETER=VALUE");
  app.add_option(
         "--as", request.copied_as,
         "Measure the fused softmax over a copy of the layer in this type too, as engines store it: " +
             std::string(copied_types))
      ->type_name("TYPE");
  add_threads(app, measure.threads);
  app.add_option("--batch", measure.batch, "Contexts that are asked, or drawn after, together")
      ->check(count())
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--json", request.json, "Write the results to this file too; -: to standard output")
      ->check(file_name())
      ->type_name("OUT");
  app.add_option("--html", request.html, "Write a report with plots to this file too; -: to standard output")
      ->check(file_name())
      ->type_name("OUT");
}

/// A flag that has something else measured.
void add_measurand(CLI::App& app, const char* name, Measurand what, MeasureRequest& request,
                   const char* help) {
  app.add_flag_callback(
      name, [&request, what] { request.what = what; }, help);
}

/// What is done instead of one table.
void declare_experiments(CLI::App& app, MeasureRequest& request) {
  add_measurand(
      app, "--sweep", Measurand::sweep, request,
      "Measure each backend at many settings of its own trade-off, print those that no other beats and "
      "the fastest at each precision");
  app.add_option_function<std::string>(
         "--ablation",
         [&request](const std::string& name) {
           request.what = Measurand::ablation;
           request.ablation = name;
         },
         "Repeat an experiment of the papers instead: " + detail::joined(ablations(), &Ablation::name))
      ->type_name("NAME");
  auto* const with_model =
      app.add_option_group("Language model", "On a language model file whole instead (lstm.*, vocab.utf8)");
  add_measurand(*with_model, "--decode", Measurand::decode, request,
                "Tokens a second, end to end, of greedy, beam, sampled and speculative decoding");
  add_measurand(
      *with_model, "--perplexity", Measurand::perplexity, request,
      "Perplexity with each backend, by its learned log Z or with low-rank logits outside of its candidates");
  add_measurand(*with_model, "--batching", Measurand::batching, request,
                "Mini-, maxi- and top-up batching of sentences");
  with_model->require_option(0, 1);
  app.add_option("--text", request.text,
                 "File whose test.tokens --perplexity scores; without it, text that the model writes")
      ->check(file_name())
      ->type_name("FILE");
}

void declare_sampling(CLI::App& app, MeasureRequest& request) {
  add_measurand(app, "--sampling", Measurand::sampling, request,
                "Draw tokens from exactly the layer's distribution instead, one after each timed context");
  SamplingOptions& options = request.drawn_by.options;
  const auto add = [&app](const char* name, double& value, const char* help) {
    app.add_option(name, value, help)->type_name("X")->capture_default_str();
  };
  add(kDrawnBy[0], options.temperature, "Of --sampling: what logits are divided by");
  add(kDrawnBy[1], options.top_p, "Of --sampling: the share of the nucleus; 1: all tokens");
  add(kDrawnBy[2], options.min_p,
      "Of --sampling: the least probability that stays, as a share of the best one's");
  add(kDrawnBy[3], options.typical_p,
      "Of --sampling: the share of the tokens whose surprise is nearest to the entropy; 1: all tokens");
  add(kDrawnBy[4], options.top_n_sigma,
      "Of --sampling: how many standard deviations below the best logit tokens stay; 0: all");
  add(kDrawnBy[5], options.log_z_error,
      "Of --sampling: how far off the log Z of a nucleus may be, except in one draw of 1,000; 0: exact");
  const auto add_number = [&app](const char* name, std::size_t& value, const char* help) {
    app.add_option(name, value, help)->check(count())->type_name("N");
  };
  add_number(kDrawnBy[6], options.top_k,
             "Of --sampling: the most probable tokens that stay; all if not given");
  add_number(kDrawnBy[7], request.drawn_by.allowed,
             "Of --sampling: tokens that a mask allows, as a grammar's; all if not given");
}

void declare_cursor(CLI::App& app, MeasureRequest& request) {
  app.add_option_function<std::vector<std::size_t>>(
         "--cursor",
         [&request](const std::vector<std::size_t>& tokens) {
           request.what = Measurand::cursor;
           request.cursor_tokens = tokens;
         },
         "Time a cursor that takes this many next best tokens instead, as 9,50,200, against queries for as "
         "many")
      ->delimiter(',')
      ->check(count())
      ->type_name("N");
}

void declare_ranks(CLI::App& app, MeasureRequest& request) {
  add_measurand(
      app, "--ranks", Measurand::ranks, request,
      "Under mpirun: measure backends over as many slices of the vocabulary as there are ranks instead, "
      "against each over the whole of it");
}

/// Defaults that depend on what else was asked for.
void complete(const CLI::App& app, MeasureRequest& request) {
  if (app.count("--backends") == 0) request.backends = default_backends(request.what);
  if (request.what != Measurand::sweep) return;
  if (app.count("--timed") == 0) request.measure.timed = kSweepTimed;
  if (app.count("--rounds") == 0) request.measure.rounds = kSweepRounds;
}

}  // namespace

Action declare_measure(CLI::App& app) {
  const auto request = std::make_shared<MeasureRequest>();
  declare_measuring(app, *request);
  declare_experiments(app, *request);
  declare_sampling(app, *request);
  declare_cursor(app, *request);
  declare_ranks(app, *request);
  return [request, &app](const Invocation& invocation) {
    complete(app, *request);
    check(app, *request);
    check_settings(*request, invocation.registry);
    measure(*request, invocation);
  };
}

}  // namespace topksoftmax::bench
