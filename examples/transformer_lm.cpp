// SPDX-License-Identifier: Apache-2.0
//
// A transformer language model that completes C code, its softmax layer answered in full and by faster heads:
// what they write, how fast, and how much of the time is left in the output layer.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "positive.hpp"
#include "progress.hpp"
#include "sampling_arguments.hpp"
#include "sliding_window.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"
#include "topksoftmax/evaluation/precision.hpp"
#include "topksoftmax/stopwatch.hpp"
#include "topksoftmax/topksoftmax.hpp"
#include "transformer_model.hpp"

namespace topksoftmax::examples {
namespace {

struct Arguments {
  std::string model;
  std::string prompt = "static int find_first(const int *values, int count)\n{\n\tint i;\n\n\tfor (i = 0;";
  std::vector<std::string> heads = {"certified", "l2s"};
  std::vector<std::size_t> threads = {1, 2};
  std::size_t tokens = 150;
  std::size_t rounds = 5;
  double budget = 400;
  std::uint64_t seed = 1;
  SamplingOptions sampling = {.temperature = 0.8, .top_k = 40, .top_p = 0.95};
};

/// What a head wrote, and what it took.
struct Written {
  std::vector<TokenId> text;  ///< the prompt at its beginning
  std::size_t tokens = 0;     ///< that were written
  std::size_t slides = 0;     ///< of the window
  double body_seconds = 0.0;
  double head_seconds = 0.0;

  double seconds_per_token() const { return (body_seconds + head_seconds) / static_cast<double>(tokens); }
  double head_seconds_per_token() const { return head_seconds / static_cast<double>(tokens); }
  double head_share() const { return head_seconds / (body_seconds + head_seconds); }
};

/// Continues a prompt until the text ends or has as many tokens more as are wanted. Every head is asked for
/// the same number of tokens, and each token is drawn from these alone: heads that answer alike write alike.
/// The time is that of writing; the prompt has been read by then.
Written write(const TransformerModel& model, const TopKSoftmax& head, std::span<const TokenId> prompt,
              const Arguments& arguments, bool greedy, std::size_t threads) {
  std::optional<PinnedThread> pinned;
  if (threads == 1) pinned.emplace();
  RandomStream random(arguments.seed);
  const QueryOptions query = {.k = greedy ? 1 : arguments.sampling.top_k, .probabilities = false};
  std::vector<Workspace> workspaces(threads);
  TopK top;
  Written written = {.text = {prompt.begin(), prompt.end()}};
  SlidingWindow window(model, threads);
  const float* h = window.read(prompt);
  while (written.tokens < arguments.tokens) {
    TokenId token = 0;
    {
      const Stopwatch watch(written.head_seconds);
      head.query({h, model.dim()}, query, workspaces, top);
      token = greedy ? top.ids[0] : distribution_of(top, arguments.sampling).draw(random.uniform());
    }
    ++written.tokens;
    if (token == Pieces::kStart || token == Pieces::kEnd) break;
    written.text.push_back(token);
    const Stopwatch watch(written.body_seconds);
    h = window.read(std::span(written.text).last(1));
  }
  written.slides = window.slides();
  return written;
}

/// A way to write, with each head and number of threads.
struct Runs {
  bool greedy = false;
  std::size_t threads = 1;
  std::size_t prompt = 0;         ///< tokens of it
  std::vector<Written> of_heads;  ///< the run of median speed
};

using Heads = std::vector<std::unique_ptr<TopKSoftmax>>;

/// Heads take turns, so that whatever else the machine does meets all of them alike.
Runs run_heads(const TransformerModel& model, const Heads& heads, std::span<const TokenId> prompt,
               const Arguments& arguments, bool greedy, std::size_t threads) {
  std::vector<std::vector<Written>> rounds(heads.size());
  const std::string step =
      std::string(greedy ? "greedy" : "sampled") + ", threads: " + std::to_string(threads);
  for (std::size_t round = 0; round < arguments.rounds; ++round) {
    for (std::size_t i = 0; i < heads.size(); ++i) {
      show_progress(step, static_cast<double>(round * heads.size() + i) /
                              static_cast<double>(arguments.rounds * heads.size()));
      rounds[i].push_back(write(model, *heads[i], prompt, arguments, greedy, threads));
    }
  }
  show_progress(step, 1.0);
  Runs runs = {.greedy = greedy, .threads = threads, .prompt = prompt.size(), .of_heads = {}};
  for (std::vector<Written>& of_head : rounds) {
    const auto median = of_head.begin() + static_cast<std::ptrdiff_t>(of_head.size() / 2);
    std::nth_element(of_head.begin(), median, of_head.end(), [](const Written& a, const Written& b) {
      return a.seconds_per_token() < b.seconds_per_token();
    });
    runs.of_heads.push_back(std::move(*median));
  }
  return runs;
}

void print_text(const std::string& text) {
  std::string shown = "  ";
  for (const char c : text) shown += c == '\n' ? "\n  " : std::string(1, c);
  std::printf("%s\n", shown.c_str());
}

/// Prints what each head wrote; false where one that proves its answers wrote something else than the full
/// softmax.
bool print_texts(const TransformerModel& model, const Heads& heads, const Runs& runs) {
  const char* const way = runs.greedy ? "greedy" : "sampled";
  const Written& full = runs.of_heads.front();
  const std::string full_name(heads.front()->name());
  std::printf("\n%s, %s, %zu tokens after the prompt's %zu:\n\n", full_name.c_str(), way, full.tokens,
              runs.prompt);
  print_text(model.pieces().decode(full.text));
  bool right = true;
  for (std::size_t i = 1; i < heads.size(); ++i) {
    const std::vector<TokenId>& text = runs.of_heads[i].text;
    const std::string name(heads[i]->name());
    const auto other = std::mismatch(full.text.begin(), full.text.end(), text.begin(), text.end()).second;
    if (text == full.text) {
      std::printf("\n%s, %s: token for token the same as %s.\n", name.c_str(), way, full_name.c_str());
    } else {
      const auto same = other - text.begin() - static_cast<std::ptrdiff_t>(runs.prompt);
      std::printf("\n%s, %s: the same as %s for %td tokens, then others:\n\n", name.c_str(), way,
                  full_name.c_str(), same);
      print_text(model.pieces().decode(text));
      right &= !heads[i]->certifies();
    }
  }
  return right;
}

void print_table(const Heads& heads, const std::vector<Runs>& all) {
  std::printf("\n  %-8s %-8s %-10s %9s %8s %9s %16s %8s %18s\n", "threads", "tokens", "head", "tokens/s",
              "speedup", "body µs", "output layer µs", "speedup", "share of the time");
  for (const Runs& runs : all) {
    const Written& full = runs.of_heads.front();
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const Written& written = runs.of_heads[i];
      std::printf("  %-8zu %-8s %-10s %9.0f %7.2f× %8.0f %15.0f %7.1f× %16.0f %%\n", runs.threads,
                  runs.greedy ? "greedy" : "sampled", std::string(heads[i]->name()).c_str(),
                  1.0 / written.seconds_per_token(), full.seconds_per_token() / written.seconds_per_token(),
                  1e6 * (written.seconds_per_token() - written.head_seconds_per_token()),
                  1e6 * written.head_seconds_per_token(),
                  full.head_seconds_per_token() / written.head_seconds_per_token(),
                  100.0 * written.head_share());
    }
  }
}

/// The full softmax, and the heads that are asked for.
Heads build_heads(const TransformerModel& model, const Arguments& arguments) {
  Heads heads;
  heads.push_back(Fused::make(model.layer()));
  const RowMajorMatrix contexts = model.file().matrix("contexts.train");
  std::printf("The heads learn from %td contexts of other files:", contexts.rows());
  std::fflush(stdout);
  for (const std::string& name : arguments.heads) {
    double seconds = 0.0;
    {
      const Stopwatch watch(seconds);
      show_progress("building " + name, 0.0);
      if (name == "certified") {
        heads.push_back(Certified::build(model.layer(), contexts));
      } else {
        L2SOptions options;
        options.budget = arguments.budget;
        options.outside_sample = 0;  // no probability is asked for
        options.progress = [](std::string_view step, double done) {
          show_progress("L2S: " + std::string(step), done);
        };
        heads.push_back(L2S::train(model.layer(), contexts, options));
      }
      show_progress("building " + name, 1.0);
    }
    std::printf("%s %s in %.1f s", heads.size() > 2 ? "," : "", name.c_str(), seconds);
    std::fflush(stdout);
  }
  std::printf(".\n");
  return heads;
}

/// How often each head finds the best token of contexts that it has not seen.
void print_precision(const TransformerModel& model, const Heads& heads) {
  const RowMajorMatrix contexts = model.file().matrix("contexts.test");
  const GroundTruth truth = find_ground_truth(model.layer(), contexts, 1, 0);
  std::printf("They find the best token of %td contexts that they have not seen:", contexts.rows());
  for (std::size_t i = 1; i < heads.size(); ++i) {
    const std::vector<TopK> answers = answer_contexts(*heads[i], contexts, {.k = 1, .probabilities = false});
    std::printf("%s %s for %.2f %%", i > 1 ? "," : "", std::string(heads[i]->name()).c_str(),
                100.0 * measure_precision(model.layer(), contexts, truth, answers).at[0]);
  }
  std::printf(".\n");
}

/// The numbers of threads to write with, without those that the machine lacks.
std::vector<std::size_t> threads_at_hand(const std::vector<std::size_t>& wanted) {
  const std::size_t most = default_executor().threads();
  std::vector<std::size_t> threads;
  for (const std::size_t count : wanted) {
    if (count <= most) {
      threads.push_back(count);
    } else {
      std::printf("Left out: %zu threads, of which there are %zu.\n", count, most);
    }
  }
  if (threads.empty()) throw Error("no number of threads is left to write with");
  return threads;
}

int run(const Arguments& arguments) {
  check(arguments.sampling);
  const std::vector<std::size_t> threads = threads_at_hand(arguments.threads);
  const TransformerModel model(arguments.model);
  const std::vector<TokenId> prompt = model.pieces().encode(arguments.prompt);
  std::printf(
      "A transformer of %zu blocks and %zu positions: V = %zu pieces, d = %zu. For each token it reads %.1f "
      "MB "
      "of\nweights in the blocks, and in the full output layer %.1f MB more.\n",
      model.blocks(), model.positions(), model.layer().vocab(), model.dim(),
      static_cast<double>(model.body_bytes()) / 1e6, static_cast<double>(model.layer().bytes()) / 1e6);
  const Heads heads = build_heads(model, arguments);
  if (model.file().contains("contexts.test")) print_precision(model, heads);

  std::vector<Runs> all;
  bool right = true;
  for (const std::size_t count : threads) {
    for (const bool greedy : {true, false}) {
      all.push_back(run_heads(model, heads, prompt, arguments, greedy, count));
      if (count == threads.front()) right &= print_texts(model, heads, all.back());
    }
  }
  if (const std::size_t slides = all.front().of_heads.front().slides; slides > 0) {
    std::printf(
        "\nThe first text filled the window of %zu tokens, %zu times: its last half was kept each time,\n"
        "and read anew in the body's time.\n",
        model.positions(), slides);
  }
  print_table(heads, all);
  if (!right) std::fprintf(stderr, "transformer_lm: a head that proves its answers gave a wrong one\n");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace topksoftmax::examples

int main(int argc, char** argv) {
  using namespace topksoftmax::examples;
  try {
    Arguments arguments;
    CLI::App app(
        "Completes C code with a transformer, greedily and sampled, with the full softmax and faster heads.",
        "transformer_lm");
    app.add_option("model,--model", arguments.model,
                   "The language model (safetensors; examples/transformer_model.hpp lists its tensors)")
        ->required();
    app.add_option("--prompt", arguments.prompt,
                   "What the text begins with; the beginning of a C function if not given");
    app.add_option("--tokens", arguments.tokens, "Tokens to write at most")
        ->check(positive())
        ->capture_default_str();
    app.add_option("--heads", arguments.heads, "Heads beside the full softmax, separated by commas")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::IsMember({"certified", "l2s"}))
        ->capture_default_str();
    app.add_option("--threads", arguments.threads, "Threads to write with, one measurement for each number")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(positive())
        ->capture_default_str();
    app.add_option("--rounds", arguments.rounds, "Times that each text is written; the median is shown")
        ->check(positive())
        ->capture_default_str();
    add_sampling_options(app, arguments.sampling, "Keep this many of the likeliest tokens, at least 1")
        ->check(positive());
    app.add_option("--budget", arguments.budget, "Candidates that L2S may score on average")
        ->check(CLI::Range(1.0, 1e6))
        ->capture_default_str();
    app.add_option("--seed", arguments.seed, "Of the random numbers")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "transformer_lm: %s\n", error.what());
    return 1;
  }
}
