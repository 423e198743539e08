// SPDX-License-Identifier: Apache-2.0
//
// What an engine gains: a German-English translation model on LibTorch, with torch's own output layer, and
// with this library's heads in its place, which share torch's tensors. BLEU, words a second, and the output
// layer's share of the time.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "positive.hpp"
#include "progress.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/numeric/quantile.hpp"
#include "topksoftmax/stopwatch.hpp"
#include "topksoftmax/topksoftmax.hpp"
#include "torch_softmax.hpp"
#include "torch_translation_model.hpp"
#include "translation_test.hpp"

/// OpenBLAS's own, where torch multiplies with an OpenBLAS that does not take OpenMP's threads; otherwise
/// null.
extern "C" __attribute__((weak)) void openblas_set_num_threads(int threads);

namespace topksoftmax::examples {
namespace {

struct Arguments {
  std::string model;
  std::string test;
  std::string contexts;
  std::vector<int> threads = {1, 2};
  std::vector<std::size_t> beams = {1, 5};
  std::size_t limit = 1000;
  std::size_t batch = 32;
  std::size_t rounds = 5;
  double budget = 200;
};

struct NamedHead {
  std::string name;
  const TopKSoftmax* head;
  bool on_torchs_threads = false;
  double log_z_tolerance = 0.0;  ///< of beams: QueryOptions::log_z_tolerance
};

/// The sentences' numbers, those of like length next to each other, the longest first.
std::vector<std::size_t> by_length(const std::vector<TestSentence>& sentences) {
  std::vector<std::size_t> order(sentences.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sentences[a].source.size() > sentences[b].source.size();
  });
  return order;
}

struct Run {
  Translations translations;
  double seconds = 0.0;
  double model_seconds =
      0.0;  ///< encoder, decoder and attention; the rest is the output layer and the search
};

Run translate(const TorchTranslationModel& model, const NamedHead& asked, std::size_t beam, std::size_t batch,
              const std::vector<TestSentence>& sentences) {
  const BeamSearchOptions options = {
      .beam = beam,
      .max_length = 60,
      .length_penalty = beam == 1 ? 0.0 : 1.0,
      .end = TorchTranslationModel::kEnd,
      .query = {.probabilities = false, .log_z_tolerance = asked.log_z_tolerance}};
  const SerialExecutor serial;
  const Executor& executor = asked.on_torchs_threads ? serial : default_executor();
  const std::vector<std::size_t> order = by_length(sentences);
  Run run;
  run.translations.resize(sentences.size());
  const Stopwatch watch(run.seconds);
  for (std::size_t first = 0; first < order.size(); first += batch) {
    const std::span<const std::size_t> numbers =
        std::span(order).subspan(first, std::min(batch, order.size() - first));
    TorchTranslationModel::Decoding decoding;
    {
      const Stopwatch model_watch(run.model_seconds);
      std::vector<std::vector<std::int64_t>> sources;
      for (const std::size_t s : numbers) sources.push_back(model.source_tokens(sentences[s].source));
      decoding = model.start(sources);
    }
    const BeamStep step = [&](std::span<const BeamRow> rows) {
      const Stopwatch model_watch(run.model_seconds);
      return model.step(rows, decoding);
    };
    const std::vector<TokenId> start(numbers.size(), TorchTranslationModel::kStart);
    const auto found = beam_search(*asked.head, start, step, options, executor);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      for (const TokenId token : found[i].front().tokens) {
        if (token == TorchTranslationModel::kEnd) continue;
        run.translations[numbers[i]].push_back(model.target_word(token));
      }
    }
  }
  return run;
}

/// What the rounds of one head have shown.
struct Measured {
  Translations translations;
  std::vector<double> seconds;
  std::vector<double> shares;  ///< of the output layer
};

void use_threads(int threads) {
  at::set_num_threads(threads);  // OpenMP's, which are this library's too
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(threads);
}

void print_table(const TorchTranslationModel& model, const std::vector<NamedHead>& heads, std::size_t beam,
                 const Arguments& arguments, const std::vector<TestSentence>& sentences) {
  std::vector<Measured> measured(heads.size());
  for (std::size_t round = 0; round <= arguments.rounds; ++round) {
    for (std::size_t h = 0; h < heads.size(); ++h) {
      Run run = translate(model, heads[h], beam, arguments.batch, sentences);
      show_progress("Translating", static_cast<double>(round * heads.size() + h + 1) /
                                       static_cast<double>((arguments.rounds + 1) * heads.size()));
      if (round == 0) continue;  // caches, and memory that is kept
      measured[h].seconds.push_back(run.seconds);
      measured[h].shares.push_back(1.0 - run.model_seconds / run.seconds);
      measured[h].translations = std::move(run.translations);
    }
  }
  std::printf("  %-22s %7s %10s %8s %13s %12s\n", "head", "BLEU", "words/s", "gain", "output layer",
              "as torch's");
  const double before = detail::quantile(measured.front().seconds, 0.5);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const Measured& one = measured[h];
    const double seconds = detail::quantile(one.seconds, 0.5);
    std::size_t words = 0;
    std::size_t equal = 0;
    for (std::size_t s = 0; s < sentences.size(); ++s) {
      words += one.translations[s].size();
      equal += one.translations[s] == measured.front().translations[s] ? 1U : 0U;
    }
    std::printf("  %-22s %7.2f %10.0f %7.2f× %11.0f %% %10.1f %%\n", heads[h].name.c_str(),
                bleu(one.translations, sentences), static_cast<double>(words) / seconds, before / seconds,
                100.0 * detail::quantile(one.shares, 0.5),
                100.0 * static_cast<double>(equal) / static_cast<double>(sentences.size()));
  }
  std::fflush(stdout);
}

int run(const Arguments& arguments) {
  const c10::InferenceMode inference;
  const TorchTranslationModel model(arguments.model);
  const at::Tensor& weight = model.weight();
  const at::Tensor& bias = model.bias();
  const SoftmaxLayer layer = SoftmaxLayer::borrow(
      Eigen::Map<const RowMajorMatrix>(weight.data_ptr<float>(), weight.size(0), weight.size(1)),
      Eigen::Map<const Eigen::VectorXf>(bias.data_ptr<float>(), bias.size(0)));
  const std::vector<TestSentence> sentences = read_test_sentences(arguments.test, arguments.limit);
  const RowMajorMatrix contexts = HeadFile::open(arguments.contexts).train_contexts();
  std::printf(
      "A translation model on LibTorch: V = %zu words, d = %zu. Heads learn from %td contexts of other "
      "sentences.\n",
      layer.vocab(), layer.dim(), contexts.rows());

  L2SOptions options;
  options.budget = arguments.budget;
  options.progress = [](std::string_view step, double done) {
    show_progress("L2S: " + std::string(step), done);
  };
  const TorchSoftmax torch(layer, weight, bias);
  const Fused fused(layer);
  const auto certified = Certified::build(layer, contexts);
  const auto l2s = L2S::train(layer, contexts, options);
  const NamedHead torch_head = {.name = "torch", .head = &torch, .on_torchs_threads = true};
  const NamedHead fused_head = {.name = "fused", .head = &fused};
  const NamedHead certified_head = {.name = "certified", .head = certified.get()};
  const NamedHead estimate_head = {.name = "certified, log Z est.",
                                   .head = certified.get(),
                                   .log_z_tolerance = std::numeric_limits<double>::infinity()};
  const NamedHead l2s_head = {.name = "l2s", .head = l2s.get()};

  for (const int threads : arguments.threads) {
    use_threads(threads);
    for (const std::size_t beam : arguments.beams) {
      std::printf("\nBeam %zu, %zu sentences at a time, %d %s:\n\n", beam, arguments.batch, threads,
                  threads == 1 ? "thread" : "threads");
      std::vector<NamedHead> heads = {torch_head, fused_head, certified_head};
      if (beam > 1) heads.push_back(estimate_head);  // the best token takes no log Z
      heads.push_back(l2s_head);
      print_table(model, heads, beam, arguments, sentences);
    }
  }
  return 0;
}

}  // namespace
}  // namespace topksoftmax::examples

int main(int argc, char** argv) {
  topksoftmax::examples::Arguments arguments;
  CLI::App app("Translates with torch's output layer and with this library's: BLEU, and the speed of all.",
               "torch_translate");
  app.add_option("model", arguments.model,
                 "The translation model (safetensors; examples/translation_model.hpp lists its tensors)")
      ->required();
  app.add_option("test", arguments.test, "Tab-separated lines: source, reference")->required();
  app.add_option("contexts", arguments.contexts, "Head file whose contexts.train the heads learn from")
      ->required();
  app.add_option("--threads", arguments.threads, "Numbers of threads")
      ->check(topksoftmax::examples::positive())
      ->capture_default_str();
  app.add_option("--beams", arguments.beams, "Widths of beams; 1 is greedy")
      ->check(topksoftmax::examples::positive())
      ->capture_default_str();
  app.add_option("--limit", arguments.limit, "Sentences to translate")
      ->check(topksoftmax::examples::positive())
      ->capture_default_str();
  app.add_option("--batch", arguments.batch, "Sentences that are translated together")
      ->check(topksoftmax::examples::positive())
      ->capture_default_str();
  app.add_option("--rounds", arguments.rounds, "Times that all is translated, of which the median counts")
      ->check(topksoftmax::examples::positive())
      ->capture_default_str();
  app.add_option("--budget", arguments.budget, "Candidates that L2S may score on average")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return topksoftmax::examples::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch_translate: %s\n", error.what());
    return 1;
  }
}
