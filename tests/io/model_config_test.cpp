// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/model_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

class ModelConfigTest : public ::testing::Test {
 protected:
  ModelConfig read(const std::string& json) const {
    return read_model_config(folder_.write("config.json", json));
  }
  std::string refusal(const std::string& json) const {
    return error_of([&] { read(json); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ModelConfigTest, SaysNothingOfWhatTheFileDoesNotSay) {
  for (const char* const json :
       {"{}", R"({"logit_scale":null,"tie_word_embeddings":null,"text_config":3})"}) {
    const ModelConfig config = read(json);
    EXPECT_EQ(config.name, "");
    EXPECT_EQ(config.tied, std::nullopt);
    EXPECT_TRUE(config.transform.is_identity());
  }
}

TEST_F(ModelConfigTest, KnowsEveryScaleOfLogits) {
  EXPECT_EQ(read(R"({"logit_scale":0.0625})").transform, (LogitTransform{.scale = 0.0625F}));
  EXPECT_EQ(read(R"({"lm_head_multiplier":0.5})").transform, (LogitTransform{.scale = 0.5F}));
  EXPECT_EQ(read(R"({"output_multiplier_scale":2})").transform, (LogitTransform{.scale = 2.0F}));
  EXPECT_EQ(read(R"({"logits_scaling":8.0})").transform, (LogitTransform{.scale = 0.125F}));
  EXPECT_EQ(read(R"({"final_logit_softcapping":30.0})").transform, (LogitTransform{.soft_cap = 30.0F}));
}

TEST_F(ModelConfigTest, PrefersWhatItSaysItselfToWhatItSaysOfTheText) {
  const ModelConfig config =
      read(R"({"logit_scale":2.0,"text_config":{"logit_scale":4.0,"final_logit_softcapping":10.0,)"
           R"("tie_word_embeddings":false}})");
  EXPECT_EQ(config.transform, (LogitTransform{.scale = 2.0F, .soft_cap = 10.0F}));
  EXPECT_EQ(config.tied, false);
}

TEST_F(ModelConfigTest, TakesTheLastPartOfTheName) {
  EXPECT_EQ(read(R"({"_name_or_path":"Qwen/Qwen3-0.6B"})").name, "Qwen3-0.6B");
  EXPECT_EQ(read(R"({"_name_or_path":"/models/tiny//"})").name, "tiny");
  EXPECT_EQ(read(R"({"_name_or_path":"tiny"})").name, "tiny");
  EXPECT_EQ(read(R"({"_name_or_path":"//"})").name, "");
}

TEST_F(ModelConfigTest, RefusesWhatMakesNoSense) {
  EXPECT_THAT(refusal("[]"), HasSubstr("config.json: is not a JSON object"));
  EXPECT_THAT(refusal("{"), HasSubstr("config.json: is not valid JSON at byte 2"));
  EXPECT_THAT(refusal(std::string("{}\0", 3)), HasSubstr("a zero byte"));
  EXPECT_THAT(refusal(std::string(ModelConfig::max_bytes + 1, ' ')),
              HasSubstr("has 1000001 bytes, the limit for a config.json is 1000000"));
  EXPECT_THAT(refusal(R"({"logit_scale":"2"})"), HasSubstr(R"("logit_scale" is "\"2\"", expected a number)"));
  EXPECT_THAT(refusal(R"({"tie_word_embeddings":1})"), HasSubstr("expected true or false"));
  EXPECT_THAT(refusal(R"({"_name_or_path":1})"), HasSubstr("expected a text"));
  EXPECT_THAT(refusal(R"({"logits_scaling":0})"), HasSubstr("config.json: "));
  EXPECT_THAT(refusal(R"({"final_logit_softcapping":-1.0})"), HasSubstr("soft cap"));
  // Nested as deep as a file may be long.
  EXPECT_THAT(refusal(std::string(ModelConfig::max_bytes, '[')), HasSubstr("is not valid JSON at byte"));
}

}  // namespace
}  // namespace topksoftmax
