// SPDX-License-Identifier: Apache-2.0
#include "translate_text.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "topksoftmax/error.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using examples::TextArguments;
using examples::TextTranslator;
using examples::TranslationModel;

class TranslateText : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path file =
        std::filesystem::path(TOPKSOFTMAX_HEADS) / "translation-model.safetensors";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
    model_ = std::make_unique<TranslationModel>(file);
    head_ = Fused::make(model_->layer());
  }

  TextTranslator translator(const TextArguments& arguments) const { return {*model_, *head_, arguments}; }

  std::unique_ptr<TranslationModel> model_;
  std::unique_ptr<Fused> head_;
};

constexpr const char* kText = "ein hund läuft über das gras .";

TEST_F(TranslateText, BeamsFindAsManyAsAreFollowed) {
  const std::vector<std::string> found = translator({.text = kText, .beam = 3}).find();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), 3U);
  EXPECT_NE(found.front().find("dog"), std::string::npos) << found.front();
}

TEST_F(TranslateText, ASeedDrawsTheSame) {
  const TextArguments arguments = {.text = kText, .draws = 6, .sampling = {.top_p = 0.95}, .seed = 3};
  const std::vector<std::string> drawn = translator(arguments).draw();
  ASSERT_EQ(drawn.size(), 6U);
  EXPECT_EQ(translator(arguments).draw(), drawn);
  EXPECT_GT(std::set<std::string>(drawn.begin(), drawn.end()).size(), 1U);
}

TEST_F(TranslateText, PenaltiesKeepWordsFromBeingRepeated) {
  const auto repeats = [](const std::string& text) {
    std::vector<std::string> words = examples::words_of(text);
    std::sort(words.begin(), words.end());
    return std::adjacent_find(words.begin(), words.end()) != words.end();
  };
  TextArguments arguments = {.text = "ein mann und ein hund und ein kind .", .beam = 2, .draws = 4};
  arguments.sampling.temperature = 0.0;
  EXPECT_TRUE(repeats(translator(arguments).find().front()));
  EXPECT_TRUE(repeats(translator(arguments).draw().front()));
  arguments.penalties.presence = 100.0;
  EXPECT_FALSE(repeats(translator(arguments).find().front()));
  EXPECT_FALSE(repeats(translator(arguments).draw().front()));
}

TEST_F(TranslateText, RefusesWhatHasNoWord) {
  EXPECT_THROW(translator({.text = " "}).find(), Error);
}

}  // namespace
}  // namespace topksoftmax
