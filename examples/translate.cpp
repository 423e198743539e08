// SPDX-License-Identifier: Apache-2.0
//
// A German-English translation model whole: BLEU of beam searches with each head, and how much faster the
// softmax layer and the decoder become.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "progress.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/fgd/build.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/stopwatch.hpp"
#include "topksoftmax/topksoftmax.hpp"
#include "translation_model.hpp"
#include "translation_test.hpp"

namespace topksoftmax::examples {
namespace {

constexpr std::size_t kWideBeam = 5;

struct Arguments {
  std::string model;
  std::string test;
  std::string contexts;
  std::size_t limit = 1000;
  std::size_t shown = 3;
  double budget = 200;
};

struct Run {
  Translations translations;
  double seconds = 0.0;        ///< encoder, decoder and head
  double model_seconds = 0.0;  ///< encoder and decoder
};

/// A head, as the table names it.
struct NamedHead {
  std::string name;
  const TopKSoftmax* head;
  double log_z_tolerance = 0.0;  ///< of beams: QueryOptions::log_z_tolerance
};

/// Translates sentence after sentence, as an interactive translator meets them.
Run translate(const TranslationModel& model, const NamedHead& asked, std::size_t beam,
              const std::vector<TestSentence>& sentences) {
  const PinnedThread pinned;
  Run run;
  const Stopwatch watch(run.seconds);
  const BeamSearchOptions options = {
      .beam = beam,
      .max_length = 60,
      .length_penalty = beam == 1 ? 0.0 : 1.0,
      .end = TranslationModel::kEnd,
      .query = {.probabilities = false, .log_z_tolerance = asked.log_z_tolerance}};
  for (const TestSentence& sentence : sentences) {
    TranslationModel::Decoding decoding;
    {
      const Stopwatch model_watch(run.model_seconds);
      std::vector<TranslationModel::Encoded> encoded(1);
      encoded[0] = model.encode(model.source_tokens(sentence.source));
      decoding = model.start(std::move(encoded));
    }
    const BeamStep step = [&](std::span<const BeamRow> rows) {
      const Stopwatch model_watch(run.model_seconds);
      return model.step(rows, decoding);
    };
    const TokenId start[] = {TranslationModel::kStart};
    const auto found = beam_search(*asked.head, start, step, options);
    std::vector<std::string> words;
    for (const TokenId token : found.front().front().tokens) {
      if (token != TranslationModel::kEnd) words.push_back(model.target_word(token));
    }
    run.translations.push_back(std::move(words));
    show_progress(asked.name + ", beam " + std::to_string(beam),
                  static_cast<double>(run.translations.size()) / static_cast<double>(sentences.size()));
  }
  return run;
}

void print_table(const TranslationModel& model, const std::vector<NamedHead>& heads,
                 const std::vector<TestSentence>& sentences, std::size_t shown) {
  std::vector<Run> greedy;
  for (const std::size_t beam : {std::size_t{1}, kWideBeam}) {
    std::printf("\nBeam %zu, one sentence at a time, one thread:\n\n", beam);
    std::printf("  %-22s %7s %13s %12s %9s %12s %9s\n", "head", "BLEU", "head ms/sent", "speedup", "total ms",
                "speedup", "in model");
    double softmax_seconds = 0.0;
    double total_seconds = 0.0;
    for (const NamedHead& head : heads) {
      if (beam == 1 && head.log_z_tolerance > 0.0) continue;  // the best token takes no log Z
      const Run run = translate(model, head, beam, sentences);
      const double in_head = run.seconds - run.model_seconds;
      if (&head == &heads.front()) {
        softmax_seconds = in_head;
        total_seconds = run.seconds;
      }
      const auto count = static_cast<double>(sentences.size());
      std::printf("  %-22s %7.2f %13.3f %11.1f× %9.3f %11.2f× %8.0f%%\n", head.name.c_str(),
                  bleu(run.translations, sentences), 1e3 * in_head / count, softmax_seconds / in_head,
                  1e3 * run.seconds / count, total_seconds / run.seconds,
                  100.0 * run.model_seconds / run.seconds);
      std::fflush(stdout);
      if (beam == 1) greedy.push_back(run);
    }
  }
  std::size_t equal = 0;
  for (std::size_t s = 0; s < sentences.size(); ++s) {
    equal += joined(greedy.front().translations[s]) == sentences[s].greedy ? 1 : 0;
  }
  std::printf("\nGreedy output of %s equals the model's own on %zu of %zu lines.\n\n",
              heads.front().name.c_str(), equal, sentences.size());
  for (std::size_t s = 0; s < std::min(shown, sentences.size()); ++s) {
    std::printf("  %s\n", joined(sentences[s].source).c_str());
    for (std::size_t i = 0; i < greedy.size(); ++i) {
      std::printf("    %-22s %s\n", heads[i].name.c_str(), joined(greedy[i].translations[s]).c_str());
    }
  }
}

int run(const Arguments& arguments) {
  const TranslationModel model(arguments.model);
  const SoftmaxLayer layer = model.layer();
  const std::vector<TestSentence> sentences = read_test_sentences(arguments.test, arguments.limit);
  const HeadFile contexts_file = HeadFile::open(arguments.contexts);
  const RowMajorMatrix contexts = contexts_file.train_contexts();
  std::printf(
      "A translation model: V = %zu words, d = %zu. Heads learn from %td contexts of other sentences.\n",
      layer.vocab(), layer.dim(), contexts.rows());

  L2SOptions options;
  options.budget = arguments.budget;
  options.progress = [](std::string_view step, double done) {
    show_progress("L2S: " + std::string(step), done);
  };
  const Exact exact(layer);
  const Fused fused(layer);
  const auto l2s = L2S::train(layer, contexts, options);
  // A beam of five asks for six tokens at a time, and any of them may be the translation's.
  L2SOptions of_beams = options;
  of_beams.clusters = 200;
  of_beams.label_count = kWideBeam + 1;
  of_beams.label_depth = 4 * of_beams.label_count;
  of_beams.lambda = options.lambda / 3;
  const auto l2s_of_beams = L2S::train(layer, contexts, of_beams);
  show_progress("L2S", 1.0);
  const auto fgd = Fgd::build(layer, contexts, {});
  const auto certified = Certified::build(layer, contexts);
  const std::vector<NamedHead> heads = {
      {"fused", &fused},
      {"exact", &exact},
      {"l2s", l2s.get()},
      {"l2s, six labels", l2s_of_beams.get()},
      {"fgd", fgd.get()},
      {"certified", certified.get()},
      {"certified, log Z est.", certified.get(), std::numeric_limits<double>::infinity()}};
  print_table(model, heads, sentences, arguments.shown);
  return 0;
}

}  // namespace
}  // namespace topksoftmax::examples

int main(int argc, char** argv) {
  topksoftmax::examples::Arguments arguments;
  CLI::App app("Translates with each head: BLEU, and the speed of the softmax layer and of all.",
               "translate");
  app.add_option("model", arguments.model,
                 "The translation model (safetensors; examples/translation_model.hpp lists its tensors)")
      ->required();
  app.add_option("test", arguments.test, "Tab-separated lines: source, reference, the model's greedy output")
      ->required();
  app.add_option("contexts", arguments.contexts, "Head file whose contexts.train the heads learn from")
      ->required();
  app.add_option("--limit", arguments.limit, "Sentences to translate")->capture_default_str();
  app.add_option("--show", arguments.shown, "Translations to show")->capture_default_str();
  app.add_option("--budget", arguments.budget, "Candidates that L2S may score on average")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return topksoftmax::examples::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "translate: %s\n", error.what());
    return 1;
  }
}
