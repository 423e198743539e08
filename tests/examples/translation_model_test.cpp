// SPDX-License-Identifier: Apache-2.0
#include "translation_model.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "support/errors.hpp"
#include "support/model_file.hpp"
#include "support/temporary_folder.hpp"
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

class SmallTranslation : public ::testing::Test {
 protected:
  static testing::ModelFile model_of(std::size_t source_words, std::size_t target_words, std::size_t dim) {
    testing::ModelFile file;
    file.add("weight", {target_words, dim});
    file.add("bias", {target_words});
    file.add("embedding.source", {source_words, dim});
    file.add("embedding.target", {target_words, dim});
    file.add_lstm("encoder", "l0", dim, dim / 2);
    file.add_lstm("encoder", "l0_reverse", dim, dim / 2);
    file.add_lstm("decoder", "l0", dim, dim);
    file.add("attention.weight", {dim, dim});
    file.add("combine.weight", {dim, 2 * dim});
    file.add_vocabulary("vocab.source", source_words);
    file.add_vocabulary("vocab.target", target_words);
    return file;
  }

  std::string error_of(const testing::ModelFile& file) const {
    return testing::error_of([&] { const TranslationModel model(file.write(folder_)); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(SmallTranslation, TensorsOfAnotherShapeAreRefusedByName) {
  testing::expect_shapes_are_checked(model_of(5, 7, 4), [this](const auto& file) { return error_of(file); });
}

TEST_F(SmallTranslation, WeightsThatAreNotFiniteAreRefusedByName) {
  for (const char* const name : {"embedding.source", "attention.weight", "encoder.bias_hh_l0_reverse"}) {
    testing::ModelFile wrong = model_of(5, 7, 4);
    wrong.tensors[name].values[2] = -std::numeric_limits<float>::infinity();
    const std::string error = error_of(wrong);
    EXPECT_NE(error.find('"' + std::string(name) + "\": value 2 is -inf; it must be finite"),
              std::string::npos)
        << error;
  }
}

TEST_F(SmallTranslation, SizesThatNoSuchModelHasAreRefused) {
  EXPECT_NE(error_of(model_of(5, 7, 3)).find("\"weight\": has rows of 3 values, no two halves"),
            std::string::npos);
  for (const auto& [source, target, name] :
       {std::tuple{3, 7, "embedding.source"}, {5, 3, "embedding.target"}}) {
    const std::string error =
        error_of(model_of(static_cast<std::size_t>(source), static_cast<std::size_t>(target), 4));
    EXPECT_NE(error.find('"' + std::string(name) + "\": has 3 rows; it must have one for </s>, token 3"),
              std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace topksoftmax
