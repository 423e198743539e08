// SPDX-License-Identifier: Apache-2.0
//
// A German-English translation model whole: BLEU of beam searches with each head, and how much faster the
// softmax layer and the decoder become; or translations of a sentence of your own (translate_text.hpp).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "progress.hpp"
#include "sampling_arguments.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"
#include "topksoftmax/fgd/build.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/stopwatch.hpp"
#include "topksoftmax/topksoftmax.hpp"
#include "translate_text.hpp"
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
  TextArguments own;
};

/// What a head has translated, and how long it took.
struct Run {
  Translations translations;
  double seconds = 0.0;        ///< encoder, decoder and head
  double model_seconds = 0.0;  ///< encoder and decoder

  double head_seconds() const { return seconds - model_seconds; }
};

/// A head, as the table names it.
struct NamedHead {
  std::string name;
  const TopKSoftmax* head;
  double log_z_tolerance = 0.0;  ///< of beams: QueryOptions::log_z_tolerance
};

/// Translates sentence after sentence, as an interactive translator meets them.
void translate(const TranslationModel& model, const NamedHead& asked, std::size_t beam,
               std::span<const TestSentence> sentences, Run& run) {
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
  }
}

/// Sentences that a head translates before it is the next one's turn.
constexpr std::size_t kSlice = 20;

/// Heads translate slices of the sentences in turn, so that whatever else the machine does meets all of them
/// alike. A sentence that does not count comes before each slice: caches hold what another head has read.
std::vector<Run> translate_in_turn(const TranslationModel& model, const std::vector<NamedHead>& heads,
                                   std::size_t beam, std::span<const TestSentence> sentences) {
  const PinnedThread pinned;
  std::vector<Run> runs(heads.size());
  for (std::size_t first = 0; first < sentences.size(); first += kSlice) {
    const auto slice = sentences.subspan(first, std::min(kSlice, sentences.size() - first));
    for (std::size_t h = 0; h < heads.size(); ++h) {
      Run warm_up;
      translate(model, heads[h], beam, slice.first(1), warm_up);
      translate(model, heads[h], beam, slice, runs[h]);
    }
    show_progress("Translating, beam " + std::to_string(beam),
                  static_cast<double>(first + slice.size()) / static_cast<double>(sentences.size()));
  }
  return runs;
}

void print_table(const std::vector<NamedHead>& heads, const std::vector<Run>& runs, std::size_t beam,
                 const std::vector<TestSentence>& sentences) {
  std::printf("\nBeam %zu, one sentence at a time, one thread:\n\n", beam);
  std::printf("  %-22s %7s %13s %12s %9s %12s %9s\n", "head", "BLEU", "head ms/sent", "speedup", "total ms",
              "speedup", "in model");
  const auto count = static_cast<double>(sentences.size());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const Run& run = runs[h];
    std::printf("  %-22s %7.2f %13.3f %11.1f× %9.3f %11.2f× %8.0f%%\n", heads[h].name.c_str(),
                bleu(run.translations, sentences), 1e3 * run.head_seconds() / count,
                runs.front().head_seconds() / run.head_seconds(), 1e3 * run.seconds / count,
                runs.front().seconds / run.seconds, 100.0 * run.model_seconds / run.seconds);
  }
  std::fflush(stdout);
}

void show_translations(const std::vector<NamedHead>& heads, const std::vector<Run>& greedy,
                       const std::vector<TestSentence>& sentences, std::size_t shown) {
  std::size_t equal = 0;
  for (std::size_t s = 0; s < sentences.size(); ++s) {
    if (joined(greedy.front().translations[s]) == sentences[s].greedy) ++equal;
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
  std::vector<NamedHead> heads = {{"fused", &fused},  {"exact", &exact},
                                  {"l2s", l2s.get()}, {"l2s, six labels", l2s_of_beams.get()},
                                  {"fgd", fgd.get()}, {"certified", certified.get()}};
  const std::vector<Run> greedy = translate_in_turn(model, heads, 1, sentences);
  print_table(heads, greedy, 1, sentences);
  show_translations(heads, greedy, sentences, arguments.shown);
  // The best token takes no log Z; beams do.
  heads.push_back({"certified, log Z est.", certified.get(), std::numeric_limits<double>::infinity()});
  print_table(heads, translate_in_turn(model, heads, kWideBeam, sentences), kWideBeam, sentences);
  return 0;
}

/// Declares --text and what is to be done with it.
void add_text_options(CLI::App& app, TextArguments& arguments) {
  CLI::Option* const text = app.add_option(
      "--text", arguments.text, "Translate this with Certified, and end: words like those of the test");
  app.add_option("--beam", arguments.beam, "How many translations of it are followed and shown")
      ->check(CLI::PositiveNumber)
      ->needs(text)
      ->capture_default_str();
  CLI::Option* const draws =
      app.add_option("--draws", arguments.draws, "How many translations of it are drawn instead")
          ->check(CLI::PositiveNumber)
          ->needs(text);
  CLI::App* const penalties = app.add_option_group("Penalties", "Of words that a translation of it has");
  add_penalties(*penalties, arguments.penalties);
  penalties->needs(text);
  CLI::App* const drawing = app.add_option_group("Draws", "What they are made by");
  drawing->add_option("--seed", arguments.seed, "Of the draws")->capture_default_str();
  add_sampling_options(*drawing, arguments.sampling, "Keep this many of the likeliest words; 0 is all");
  add_further_sampling_options(*drawing, arguments.sampling);
  drawing->needs(draws);
}

/// Translates the text of the command line.
int translate_own(const Arguments& arguments) {
  const TranslationModel model(arguments.model);
  CertifiedOptions options;
  options.progress = [](std::string_view step, double done) {
    show_progress("Certified: " + std::string(step), done);
  };
  const RowMajorMatrix contexts = HeadFile::open(arguments.contexts).train_contexts();
  const auto certified = Certified::build(model.layer(), contexts, options);
  show_progress("Certified", 1.0);
  TextTranslator translator(model, *certified, arguments.own);
  const auto translations = arguments.own.draws > 0 ? translator.draw() : translator.find();
  for (const std::string& translation : translations) std::printf("%s\n", translation.c_str());
  return 0;
}

}  // namespace
}  // namespace topksoftmax::examples

int main(int argc, char** argv) {
  topksoftmax::examples::Arguments arguments;
  CLI::App app(
      "Translates with each head: BLEU, and the speed of the softmax layer and of all. Or translates --text.",
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
  topksoftmax::examples::add_text_options(app, arguments.own);
  CLI11_PARSE(app, argc, argv);
  try {
    return arguments.own.text.empty() ? topksoftmax::examples::run(arguments)
                                      : topksoftmax::examples::translate_own(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "translate: %s\n", error.what());
    return 1;
  }
}
