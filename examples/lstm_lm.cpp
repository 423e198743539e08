// SPDX-License-Identifier: Apache-2.0
//
// A real language model, its softmax layer answered in full and by faster heads: how right they are, how
// fast, and what they write.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "any_penalties.hpp"
#include "language_model_steps.hpp"
#include "lstm_model.hpp"
#include "positive.hpp"
#include "progress.hpp"
#include "sampling_arguments.hpp"
#include "text.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"
#include "topksoftmax/evaluation/precision.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/stopwatch.hpp"
#include "topksoftmax/topksoftmax.hpp"
#include "written_contexts.hpp"

namespace topksoftmax::examples {
namespace {

/// The largest difference between the model's log-probabilities and those stored in its file.
double check(const LstmModel& model) {
  std::vector<std::int32_t> tokens(65);
  std::vector<float> expected(64);
  model.file().read("check.tokens", std::span<std::int32_t>(tokens));
  model.file().read("check.log_probs", std::span<float>(expected));
  const Exact exact(model.layer());
  LstmModel::State state = model.start(1);
  double worst = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Eigen::VectorXf h = model.read(std::span(tokens).subspan(i, 1), state).row(0);
    const TopK all = exact.query(h, {.k = model.vocab()});
    const auto at = std::find(all.ids.begin(), all.ids.end(), tokens[i + 1]) - all.ids.begin();
    worst = std::max(worst,
                     std::abs(all.log_prob(static_cast<std::size_t>(at)) - static_cast<double>(expected[i])));
  }
  return worst;
}

void print_table(const SoftmaxLayer& layer, const RowMajorMatrix& contexts,
                 const std::vector<const TopKSoftmax*>& heads) {
  const GroundTruth truth = find_ground_truth(layer, contexts, 5, 200);
  std::vector<TimedWork> works;
  std::vector<Workspace> workspaces(heads.size());
  TopK answer;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    works.push_back([&, i](std::size_t first, std::size_t count) {
      for (std::size_t q = first; q < first + count; ++q) {
        heads[i]->query(contexts.row(static_cast<Eigen::Index>(q)).data(), layer.dim(), {.k = 5},
                        workspaces[i], answer);
      }
    });
  }
  std::vector<Timing> timings;
  {
    const PinnedThread pinned;
    timings = time_interleaved(works, std::min<std::size_t>(1000, static_cast<std::size_t>(contexts.rows())),
                               {.rounds = 5, .progress = [](double done) { show_progress("timing", done); }});
  }
  show_progress("timing", 1.0);
  double baseline = timings[0].seconds_per_item;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    if (heads[i]->name() == "exact" || heads[i]->name() == "fused") {
      baseline = std::min(baseline, timings[i].seconds_per_item);
    }
  }
  std::printf("  %-10s %8s %8s %12s %9s %14s %10s\n", "head", "P@1", "P@5", "µs/query", "speedup",
              "KB read/query", "certified");
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const std::vector<TopK> answers = answer_contexts(*heads[i], contexts, {.k = 5});
    const Precision precision = measure_precision(layer, contexts, truth, answers);
    std::printf("  %-10s %8.4f %8.4f %11.2f %8.1f× %14.0f %9.0f%%\n", std::string(heads[i]->name()).c_str(),
                precision.at[0], precision.at[4], 1e6 * timings[i].seconds_per_item,
                baseline / timings[i].seconds_per_item, precision.bytes_read_mean / 1e3,
                100.0 * precision.certified_rate);
  }
}

struct Written {
  std::string text;
  double words_per_second = 0.0;
};

/// Every token but `<unk>`, and, for texts that go on, the end of a paragraph.
TokenMask writable_words(const LstmModel& model) {
  TokenMask mask = TokenMask::all(model.vocab());
  mask.forbid(model.token("<unk>"));
  mask.forbid(model.token("<eos>"));
  return mask;
}

/// Lets the model write through a head: each word is drawn from the 20 that the head finds most probable.
Written write_text(const LstmModel& model, const TopKSoftmax& head, std::size_t shown, std::size_t timed) {
  const TokenMask mask = writable_words(model);
  RandomStream random(7);
  LstmModel::State state = model.start(1);
  Workspace workspace;
  TopK top;
  Typesetter text;
  TokenId token[] = {model.token("<eos>")};
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t n = 0; n < timed; ++n) {
    const RowMajorMatrix& h = model.read(token, state);
    head.query(h.data(), head.layer().dim(), {.k = 20, .allowed = mask, .probabilities = false}, workspace,
               top);
    token[0] = distribution_of(top, {}).draw(random.uniform());
    if (n < shown) text.add(model.word(token[0]));
  }
  return {text.text(), static_cast<double>(timed) / seconds_since(start)};
}

struct Arguments {
  std::string model = TOPKSOFTMAX_EXAMPLE_DATA;
  std::string decoder;
  std::string head = "certified";
  std::string beginning;
  std::string initials;
  std::size_t words = 90;
  std::size_t beam = 5;
  std::size_t drafts = 4;
  std::uint64_t seed = 1;
  SamplingOptions sampling;
  Penalties penalties;
  bool own_distribution = false;
  bool estimated_log_z = false;
};

std::unique_ptr<TopKSoftmax> build_head(const LstmModel& model, const std::string& name) {
  const SoftmaxLayer layer = model.layer();
  if (name == "exact") return Exact::make(layer);
  if (name == "fused") return Fused::make(layer);
  const RowMajorMatrix contexts =
      write_contexts(model, 30000, [](double done) { show_progress("letting the model write", done); });
  if (name == "certified") return Certified::build(layer, contexts);
  L2SOptions options;
  options.progress = [](std::string_view step, double done) {
    show_progress("L2S: " + std::string(step), done);
  };
  auto l2s = L2S::train(layer, contexts, options);
  show_progress("L2S", 1.0);
  return l2s;
}

/// Appends words to a text, each drawn by a Sampler or a BackendSampler.
template <class AnySampler>
void draw_words(AnySampler&& sampler, const TopKSoftmax& head, const Arguments& arguments,
                const TokenMask& mask, TextReader& reader, std::vector<TokenId>& text) {
  PenaltyBiases penalise(arguments.penalties);
  RandomStream random(arguments.seed);
  const Workspace workspace;
  for (std::size_t n = 0; n < arguments.words; ++n) {
    const std::span<const float> h(reader(text), head.layer().dim());
    QueryOptions query = {.allowed = mask, .probabilities = false};
    if (are_any(arguments.penalties)) query.logit_bias = penalise(head, h, text, query, workspace);
    text.push_back(sampler.draw(head, h.data(), h.size(), random, query).id);
  }
}

/// Appends words whose initials spell `letters`, at each the likeliest one that fits. What fits is asked of
/// one word after another, from the best on, until one does: the rest of the vocabulary is never looked at.
/// Returns how many were. Throws Error where no word begins with a letter.
std::size_t spell(const LstmModel& model, const TopKSoftmax& head, const std::string& letters,
                  const TokenMask& mask, TextReader& reader, std::vector<TokenId>& text) {
  const auto lower = [](char letter) { return std::tolower(static_cast<unsigned char>(letter)); };
  std::size_t looked_at = 0;
  std::optional<TokenCursor> cursor;
  for (const char letter : letters) {
    const std::span<const float> h(reader(text), head.layer().dim());
    const QueryOptions query = {.allowed = mask};
    if (cursor) {
      cursor->start(h, query);
    } else {
      cursor.emplace(head, h, query);
    }
    std::optional<ScoredToken> word = cursor->next();
    for (++looked_at; word && lower(model.word(word->id)[0]) != lower(letter); ++looked_at) {
      word = cursor->next();
    }
    if (!word) throw Error("--initials: no word begins with \"" + std::string(1, letter) + "\"");
    text.push_back(word->id);
  }
  return looked_at;
}

/// Appends the best sentence that a beam search finds. One at most: the likeliest long text is one that says
/// nothing.
void append_best_sentence(const LstmModel& model, const TopKSoftmax& head, const Arguments& arguments,
                          const TokenMask& mask, std::vector<TokenId>& text) {
  LstmModel::State state = model.start(1);
  for (std::size_t i = 0; i + 1 < text.size(); ++i) model.read(std::span(text).subspan(i, 1), state);
  BeamSearchOptions options = {.beam = arguments.beam,
                               .max_length = arguments.words,
                               .length_penalty = 0.8,
                               .end = model.token("."),
                               .query = {.allowed = mask, .log_z_tolerance = 0.0}};
  if (arguments.estimated_log_z) options.query.log_z_tolerance = std::numeric_limits<double>::infinity();
  PenaltyBiases penalise(arguments.penalties);
  const Workspace workspace;
  if (are_any(arguments.penalties)) {
    options.query_of = [&](const BeamRow&, std::span<const TokenId> written, std::span<const float> h) {
      std::vector<TokenId> history = text;
      history.insert(history.end(), written.begin(), written.end());
      QueryOptions query = options.query;
      query.logit_bias = penalise(head, h, history, query, workspace);
      return query;
    };
  }
  const auto found = beam_search(head, std::span(text).last(1), BeamReader(model, state), options);
  text.insert(text.end(), found[0][0].tokens.begin(), found[0][0].tokens.end());
}

/// Appends words to a text with one of the decoders.
void decode(const LstmModel& model, const TopKSoftmax& head, const Arguments& arguments,
            std::vector<TokenId>& text) {
  const TokenMask mask = writable_words(model);
  if (arguments.decoder == "beam") return append_best_sentence(model, head, arguments, mask, text);
  TextReader reader(model);
  if (!arguments.initials.empty()) {
    const std::size_t looked_at = spell(model, head, arguments.initials, mask, reader, text);
    std::fprintf(stderr, "%zu words were looked at for %zu\n", looked_at, arguments.initials.size());
    return;
  }
  if (arguments.decoder == "speculative") {
    const ContextModel contexts = [&](std::span<const TokenId> tokens, float* h) {
      std::copy_n(reader(tokens), model.dim(), h);
    };
    RandomStream random(arguments.seed);
    self_draft(text, arguments.words, head, contexts, random,
               {.sampling = arguments.sampling,
                .speculative = {.drafts = arguments.drafts},
                .query = {.allowed = mask}});
    return;
  }
  SamplingOptions sampling = arguments.sampling;
  if (arguments.decoder == "greedy") sampling.temperature = 0.0;
  if (arguments.own_distribution) {
    draw_words(BackendSampler(sampling), head, arguments, mask, reader, text);
  } else {
    draw_words(Sampler(sampling), head, arguments, mask, reader, text);
  }
}

/// Throws for penalties, and for kinds of log Z, that a decoder knows nothing of.
void check_decoder(const Arguments& arguments) {
  const auto refuse = [&arguments](const std::string& option) {
    throw Error("--decoder " + arguments.decoder + " takes no " + option);
  };
  if (arguments.decoder == "speculative" && are_any(arguments.penalties)) refuse("penalties");
  if (!arguments.initials.empty() && arguments.decoder != "greedy") refuse("--initials");
  if (!arguments.initials.empty() && are_any(arguments.penalties)) {
    throw Error("--initials takes no penalties");
  }
  const bool draws_one_by_one = arguments.decoder != "speculative" && arguments.decoder != "beam";
  if (arguments.own_distribution && !draws_one_by_one) refuse("--own-distribution");
  if (arguments.estimated_log_z && arguments.decoder != "beam") refuse("--estimated-log-z");
}

int write(const Arguments& arguments) {
  check(arguments.sampling);
  check(arguments.penalties);
  check_decoder(arguments);
  const LstmModel model(arguments.model);
  std::vector<TokenId> text = {model.token("<eos>")};
  for (const std::string& word : words_of(arguments.beginning)) text.push_back(model.token(word));
  const auto head = build_head(model, arguments.head);
  const std::size_t before = text.size();
  const auto start = std::chrono::steady_clock::now();
  decode(model, *head, arguments, text);
  const double seconds = seconds_since(start);
  Typesetter shown;
  for (std::size_t i = 1; i < text.size(); ++i) shown.add(model.word(text[i]));
  std::printf("%s", shown.text().c_str());
  std::fprintf(stderr, "\n%s with the head %s: %.0f words a second\n", arguments.decoder.c_str(),
               std::string(head->name()).c_str(), static_cast<double>(text.size() - before) / seconds);
  return 0;
}

int compare_heads(const std::string& path) {
  const LstmModel model(path);
  const SoftmaxLayer layer = model.layer();
  const RowMajorMatrix test = model.file().matrix("contexts.test");
  std::printf("A language model of two LSTM layers: V = %zu words, d = %zu, a softmax layer of %.1f MB.\n",
              layer.vocab(), layer.dim(), static_cast<double>(layer.bytes()) / 1e6);
  if (model.file().contains("check.tokens"))
    std::printf("Its log-probabilities agree with those stored in the file to %.0e.\n", check(model));
  std::printf("\n");

  auto start = std::chrono::steady_clock::now();
  const RowMajorMatrix training =
      write_contexts(model, 60000, [](double done) { show_progress("letting the model write", done); });
  std::printf("The model wrote 60,000 words of its own in %.1f s: the contexts that the heads learn from.\n",
              seconds_since(start));
  start = std::chrono::steady_clock::now();
  L2SOptions options;
  options.budget = 40;
  options.progress = [](std::string_view step, double done) {
    show_progress("L2S: " + std::string(step), done);
  };
  const auto l2s = L2S::train(layer, training, options);
  show_progress("L2S", 1.0);
  std::printf("L2S learned %zu clusters and their candidate words in %.1f s.\n", options.clusters,
              seconds_since(start));
  start = std::chrono::steady_clock::now();
  const auto certified = Certified::build(layer, training);
  std::printf("Certified was built in %.1f s.\n\n", seconds_since(start));

  std::printf("Top-5 queries for %td contexts of real text that the model has never seen, one thread:\n\n",
              test.rows());
  const Exact exact(layer);
  const Fused fused(layer);
  print_table(layer, test, {&exact, &fused, l2s.get(), certified.get()});

  std::printf("\nWhat the model writes, each word drawn from the head's 20 best:\n");
  const std::vector<const TopKSoftmax*> writers = {&exact, l2s.get(), certified.get()};
  for (const TopKSoftmax* head : writers) {
    const Written written = write_text(model, *head, 90, 3000);
    std::printf("\n%s, %.0f words a second:\n%s", std::string(head->name()).c_str(), written.words_per_second,
                written.text.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace topksoftmax::examples

int main(int argc, char** argv) {
  using namespace topksoftmax::examples;
  Arguments arguments;
  CLI::App app(
      "A language model and its softmax layer: without --decoder, compares heads; with it, writes text.",
      "lstm_lm");
  app.add_option("model", arguments.model,
                 "Language model file (lstm.*, vocab.utf8); the embedded one if not given");
  CLI::Option* const decoder = app.add_option("--decoder", arguments.decoder, "Write text, by this decoder")
                                   ->check(CLI::IsMember({"greedy", "sample", "beam", "speculative"}));
  app.add_option("--head", arguments.head, "The head that it asks")
      ->check(CLI::IsMember({"exact", "fused", "l2s", "certified"}))
      ->capture_default_str();
  app.add_option(
      "--beginning", arguments.beginning,
      "Words that the text begins with, separated by blanks; with beam, \"she looked at\" if not given");
  app.add_option("--initials", arguments.initials,
                 "With greedy: write the likeliest words whose first letters spell this, and no more");
  app.add_option("--words", arguments.words, "Words to write")->check(positive())->capture_default_str();
  add_sampling_options(app, arguments.sampling, "Keep this many of the likeliest words; 0 keeps all");
  add_further_sampling_options(app, arguments.sampling);
  add_penalties(app, arguments.penalties);
  app.add_flag("--own-distribution", arguments.own_distribution,
               "Draw from what an approximate head itself answers; without, from the full softmax");
  app.add_flag(
      "--estimated-log-z", arguments.estimated_log_z,
      "Beams over certified compare by the log Z that contexts have taught it; without, by the exact one");
  app.add_option("--beam", arguments.beam, "Hypotheses of a beam search")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--drafts", arguments.drafts, "Words that speculative sampling drafts at a time")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "Of the random numbers")->capture_default_str();
  for (CLI::Option* const option : app.get_options()) {
    const bool is_for_both = option == decoder || option == app.get_help_ptr() || option->get_positional();
    if (!is_for_both) option->needs(decoder);
  }
  CLI11_PARSE(app, argc, argv);
  // The likeliest sentence of all is not worth reading.
  if (arguments.decoder == "beam" && app.count("--beginning") == 0) arguments.beginning = "she looked at";
  try {
    return arguments.decoder.empty() ? compare_heads(arguments.model) : write(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lstm_lm: %s\n", error.what());
    return 1;
  }
}
