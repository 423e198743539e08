// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "any_penalties.hpp"
#include "text.hpp"
#include "topksoftmax/topksoftmax.hpp"
#include "translation_model.hpp"
#include "translation_test.hpp"

namespace topksoftmax::examples {

/// What a sentence is translated by.
struct TextArguments {
  std::string text = {};  ///< words with spaces between them, as those of the model's vocabulary
  std::size_t beam = 5;
  std::size_t draws = 0;  ///< translations that are drawn; 0: beams find them
  SamplingOptions sampling = {};
  Penalties penalties = {};
  std::uint64_t seed = 1;
};

/// Translations of one sentence with a head: those that a beam search finds, or some that are drawn, with
/// penalties for words that a translation already has. Words that the model does not know are never written.
class TextTranslator {
 public:
  TextTranslator(const TranslationModel& model, const TopKSoftmax& head, TextArguments arguments)
      : model_(model),
        head_(head),
        arguments_(std::move(arguments)),
        mask_(TokenMask::all(head.vocab())),
        penalise_(arguments_.penalties) {
    check(arguments_.sampling);
    for (const TokenId token :
         {TranslationModel::kPadding, TranslationModel::kUnknown, TranslationModel::kStart})
      mask_.forbid(token);
  }

  /// The best ones that beams find, the best first.
  std::vector<std::string> find() {
    BeamSearchOptions options = {.beam = arguments_.beam,
                                 .n_best = arguments_.beam,
                                 .max_length = kMostWords,
                                 .length_penalty = 1.0,
                                 .end = TranslationModel::kEnd,
                                 .query = {.allowed = mask_}};
    // The estimate of log Z between its bounds: BLEU is the same, and no scan is needed.
    options.query.log_z_tolerance = std::numeric_limits<double>::infinity();
    if (are_any(arguments_.penalties)) {
      options.query_of = [&](const BeamRow&, std::span<const TokenId> written, std::span<const float> h) {
        return penalised(options.query, h, written);
      };
    }
    TranslationModel::Decoding decoding = begin();
    const BeamStep step = [&](std::span<const BeamRow> rows) { return model_.step(rows, decoding); };
    const TokenId start[] = {TranslationModel::kStart};
    const auto hypotheses = beam_search(head_, start, step, options);
    std::vector<std::string> found;
    for (const Hypothesis& one : hypotheses.front()) found.push_back(words_of(one.tokens));
    return found;
  }

  /// One after the other from the distribution that the options leave.
  std::vector<std::string> draw() {
    RandomStream random(arguments_.seed);
    std::vector<std::string> drawn;
    while (drawn.size() < arguments_.draws) drawn.push_back(words_of(draw_one(random)));
    return drawn;
  }

 private:
  static constexpr std::size_t kMostWords = 60;

  TranslationModel::Decoding begin() const {
    const std::vector<std::string> words = examples::words_of(arguments_.text);
    if (words.empty()) throw Error("the text has no word");
    std::vector<TranslationModel::Encoded> encoded;
    encoded.push_back(model_.encode(model_.source_tokens(words)));
    return model_.start(std::move(encoded));
  }

  QueryOptions penalised(QueryOptions query, std::span<const float> h, std::span<const TokenId> written) {
    query.logit_bias = penalise_(head_, h, written, query, workspace_);
    return query;
  }

  std::vector<TokenId> draw_one(RandomStream& random) {
    TranslationModel::Decoding decoding = begin();
    std::vector<TokenId> tokens;
    TokenId last = TranslationModel::kStart;
    while (last != TranslationModel::kEnd && tokens.size() < kMostWords) {
      const BeamRow row[] = {{.token = last}};
      const Contexts contexts = model_.step(row, decoding);
      const std::span<const float> h(contexts.row(0), contexts.dim);
      QueryOptions query = {.allowed = mask_, .probabilities = false};
      if (are_any(arguments_.penalties)) query = penalised(query, h, tokens);
      last = sampler_.draw(head_, h.data(), h.size(), random, query).id;
      tokens.push_back(last);
    }
    return tokens;
  }

  std::string words_of(std::span<const TokenId> tokens) const {
    std::vector<std::string> words;
    for (const TokenId token : tokens) {
      if (token != TranslationModel::kEnd) words.push_back(model_.target_word(token));
    }
    return joined(words);
  }

  const TranslationModel& model_;
  const TopKSoftmax& head_;
  TextArguments arguments_;
  TokenMask mask_;
  PenaltyBiases penalise_;
  Sampler sampler_{arguments_.sampling};
  const Workspace workspace_;
};

}  // namespace topksoftmax::examples
