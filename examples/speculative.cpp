// SPDX-License-Identifier: Apache-2.0
//
// The head as its own draft: an approximate head drafts words, the full softmax verifies them in one batch.
// The text is distributed exactly as the full softmax says; the program tells how much faster, or slower, it
// comes.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <vector>

#include "language_model_steps.hpp"
#include "lstm_model.hpp"
#include "text.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/self_draft.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/l2s/l2s.hpp"
#include "topksoftmax/stopwatch.hpp"
#include "written_contexts.hpp"

using namespace topksoftmax;
using namespace topksoftmax::examples;

namespace {

constexpr std::size_t kWords = 2000;

/// Words a second when each is drawn from the full softmax.
double sample_exactly(const LstmModel& model, const SamplingOptions& sampling) {
  const Fused head(model.layer());
  std::vector<TokenId> text = {model.token("<eos>")};
  TextReader reader(model);
  Sampler sampler(sampling);
  RandomStream random(1);
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t n = 0; n < kWords; ++n) {
    const float* const h = reader(text);
    text.push_back(sampler.draw(head, h, head.layer().dim(), random).id);
  }
  return kWords / seconds_since(start);
}

void compare(const LstmModel& model, const TopKSoftmax& draft, const char* what,
             const SamplingOptions& sampling) {
  const double exact = sample_exactly(model, sampling);
  std::vector<TokenId> text = {model.token("<eos>")};
  TextReader reader(model);
  const ContextModel contexts = [&](std::span<const TokenId> tokens, float* h) {
    std::copy_n(reader(tokens), model.dim(), h);
  };
  RandomStream random(1);
  const SelfDraftOptions options = {.sampling = sampling, .speculative = {.drafts = 3}};
  const auto start = std::chrono::steady_clock::now();
  const SpeculativeReport report = self_draft(text, kWords, draft, contexts, random, options);
  const double seconds = seconds_since(start);
  std::printf(
      "%s: %.0f words a second; each from the full softmax: %.0f. %.2f times as fast, predicted %.2f;\n"
      "  %zu of %zu drafts accepted, r = %.2f, %.0f %% of the time in the LSTM\n",
      what, kWords / seconds, exact, kWords / seconds / exact,
      kWords / report.predicted_seconds(kWords) / exact, report.accepted, report.drafted,
      report.acceptance_rate(), 100.0 * reader.seconds() / seconds);
  Typesetter shown;
  for (std::size_t i = 1; i < 40; ++i) shown.add(model.word(text[i]));
  std::printf("%s\n", shown.text().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Text of a language model that L2S drafts and the full softmax verifies: how much faster it comes.",
      "speculative");
  CLI11_PARSE(app, argc, argv);
  try {
    const LstmModel model(TOPKSOFTMAX_EXAMPLE_DATA);
    std::printf("Letting the model write, and L2S learn from it …\n\n");
    // Drafts are drawn, so the lists must hold most of the probability, not only the best five words.
    L2SOptions options;
    options.clusters = 50;
    options.budget = 600;
    options.label_count = 64;
    options.label_depth = 256;
    options.rounds = 1;
    const auto draft = L2S::train(model.layer(), write_contexts(model, 20000), options);
    compare(model, *draft, "Temperature 1", {});
    compare(model, *draft, "Top-p 0.9", {.top_p = 0.9});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "speculative: %s\n", error.what());
    return 1;
  }
}
