// SPDX-License-Identifier: Apache-2.0
#include "translation_model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "text.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using examples::TranslationModel;
using examples::words_of;

class Translation : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = TOPKSOFTMAX_HEADS;
    if (!std::filesystem::exists(folder / "translation-model.safetensors")) {
      GTEST_SKIP() << "no translation model in " << folder;
    }
    model_ = std::make_unique<TranslationModel>(folder / "translation-model.safetensors");
    test_ = folder / "translation-test.tsv";
  }

  std::vector<std::vector<Hypothesis>> search(const std::vector<std::vector<TokenId>>& sentences,
                                              std::size_t beam) const {
    std::vector<TranslationModel::Encoded> encoded;
    for (const auto& tokens : sentences) encoded.push_back(model_->encode(tokens));
    TranslationModel::Decoding decoding = model_->start(std::move(encoded));
    const std::vector<TokenId> start(sentences.size(), TranslationModel::kStart);
    const Fused head(model_->layer());
    return beam_search(head, start,
                       [&](std::span<const BeamRow> rows) { return model_->step(rows, decoding); },
                       {.beam = beam, .max_length = 60, .end = TranslationModel::kEnd});
  }

  std::unique_ptr<TranslationModel> model_;
  std::filesystem::path test_;
};

TEST_F(Translation, GreedyOutputIsTheModelsOwn) {
  std::ifstream file(test_);
  std::size_t equal = 0;
  std::size_t lines = 0;
  for (std::string line; lines < 60 && std::getline(file, line); ++lines) {
    std::istringstream columns(line);
    std::string source, reference, greedy;
    std::getline(columns, source, '\t');
    std::getline(columns, reference, '\t');
    std::getline(columns, greedy, '\t');
    const auto found = search({model_->source_tokens(words_of(source))}, 1);
    std::string text;
    for (const TokenId token : found[0][0].tokens) {
      if (token != TranslationModel::kEnd) text += (text.empty() ? "" : " ") + model_->target_word(token);
    }
    equal += text == greedy ? 1U : 0U;
  }
  EXPECT_EQ(lines, 60U);
  EXPECT_GE(equal, 59U);
}

TEST_F(Translation, SentencesOfABatchDoNotMix) {
  const std::vector<std::vector<TokenId>> sentences = {
      model_->source_tokens(words_of("ein mann mit einem hut .")),
      model_->source_tokens(words_of("zwei hunde .")),
      model_->source_tokens(words_of("kinder spielen im park ."))};
  const auto together = search(sentences, 4);
  for (std::size_t s = 0; s < sentences.size(); ++s) {
    const auto alone = search({sentences[s]}, 4);
    EXPECT_EQ(alone[0][0].tokens, together[s][0].tokens);
    EXPECT_NEAR(alone[0][0].log_prob, together[s][0].log_prob, 1e-3);
  }
}

TEST_F(Translation, UnknownWordsAreUnknown) {
  EXPECT_EQ(model_->source_tokens(words_of("xyzzyx"))[0], TranslationModel::kUnknown);
}

}  // namespace
}  // namespace topksoftmax
