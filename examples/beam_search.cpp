// SPDX-License-Identifier: Apache-2.0
//
// Beam search with a language model: the most probable continuations of a beginning, by the full softmax and
// by a certified head.
#include "topksoftmax/decoding/beam_search.hpp"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "language_model_steps.hpp"
#include "lstm_model.hpp"
#include "text.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/fused.hpp"
#include "written_contexts.hpp"

using namespace topksoftmax;
using namespace topksoftmax::examples;

namespace {

void search(const TopKSoftmax& head, const LstmModel& model, const std::string& beginning) {
  std::vector<TokenId> words = {model.token("<eos>")};
  for (const std::string& word : words_of(beginning)) words.push_back(model.token(word));

  LstmModel::State state = model.start(1);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) model.read(std::span(words).subspan(i, 1), state);
  BeamReader reader(model, state);

  TokenMask mask = TokenMask::all(model.vocab());
  mask.forbid(model.token("<unk>"));
  const BeamSearchOptions options = {.beam = 5,
                                     .n_best = 3,
                                     .max_length = 25,
                                     .length_penalty = 0.8,
                                     .end = model.token("."),
                                     .query = {.allowed = mask, .log_z_tolerance = 0.0}};
  const auto start = std::chrono::steady_clock::now();
  const auto found = beam_search(head, std::span(words).last(1), std::ref(reader), options);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;

  std::printf("%s, %.1f ms, of which %.1f ms in the model:\n", std::string(head.name()).c_str(),
              taken.count(), 1e3 * reader.seconds());
  for (const Hypothesis& one : found.front()) {
    Typesetter text;
    for (std::size_t i = 1; i < words.size(); ++i) text.add(model.word(words[i]));
    for (const TokenId token : one.tokens) text.add(model.word(token));
    std::printf("  %.2f\n%s", one.log_prob, text.text().c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string beginning = "she looked at";
  CLI::App app("The likeliest sentences of a language model, by the full softmax and by a certified head.",
               "beam_search");
  app.add_option("beginning", beginning, "Words that they begin with, separated by blanks")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    const LstmModel model(TOPKSOFTMAX_EXAMPLE_DATA);
    search(Fused(model.layer()), model, beginning);
    search(*Certified::build(model.layer(), write_contexts(model, 20000)), model, beginning);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "beam_search: %s\n", error.what());
    return 1;
  }
}
