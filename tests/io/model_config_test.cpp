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
  EXPECT_EQ(read(R"({"output_multiplier":2})").transform, (LogitTransform{.scale = 2.0F}));
  EXPECT_EQ(read(R"({"logits_scaling":8.0})").transform, (LogitTransform{.scale = 0.125F}));
  EXPECT_EQ(read(R"({"logits_scaling":8.0,"model_type":"granite"})").transform,
            (LogitTransform{.scale = 0.125F}));
  for (const std::string type : {"hyperclovax", "hyperclovax_vlm"}) {
    EXPECT_EQ(read(R"({"text_config":{"logits_scaling":0.125},"model_type":")" + type + "\"}").transform,
              (LogitTransform{.scale = 0.125F}));
  }
  EXPECT_EQ(read(R"({"mup_width_multiplier":8.0,"model_type":"phi3small"})").transform,
            (LogitTransform{.scale = 0.125F}));
  EXPECT_TRUE(read(R"({"mup_width_multiplier":8.0,"model_type":"other"})").transform.is_identity());
}

TEST_F(ModelConfigTest, KnowsEverySoftCapOfLogits) {
  for (const std::string cap : {"final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"}) {
    EXPECT_EQ(read("{\"" + cap + "\":30.0}").transform, (LogitTransform{.soft_cap = 30.0F})) << cap;
  }
  EXPECT_EQ(
      read(R"({"output_logit_soft_cap":1.0,"logits_soft_cap":2.0,"final_logit_softcapping":null})").transform,
      (LogitTransform{.soft_cap = 2.0F}));
}

TEST_F(ModelConfigTest, PrefersWhatItSaysItselfToWhatItSaysOfTheText) {
  const ModelConfig config =
      read(R"({"logit_scale":2.0,"text_config":{"logit_scale":4.0,"final_logit_softcapping":10.0,)"
           R"("tie_word_embeddings":false}})");
  EXPECT_EQ(config.transform, (LogitTransform{.scale = 2.0F, .soft_cap = 10.0F}));
  EXPECT_EQ(config.tied, false);
}

TEST_F(ModelConfigTest, TakesWhatItSaysOfTheDecoder) {
  const ModelConfig config =
      read(R"({"decoder":{"final_logit_softcapping":30.0},"encoder":{"final_logit_softcapping":20.0,)"
           R"("logit_scale":2.0},"model_type":"t5gemma"})");
  EXPECT_EQ(config.transform, (LogitTransform{.soft_cap = 30.0F}));
}

TEST_F(ModelConfigTest, DoesNotSayWhatItContradictsOfTheText) {
  const auto tied = [this](const std::string& own, const std::string& of_text) {
    return read(R"({"tie_word_embeddings":)" + own + R"(,"text_config":{"tie_word_embeddings":)" + of_text +
                "}}")
        .tied;
  };
  EXPECT_EQ(tied("true", "false"), std::nullopt);
  EXPECT_EQ(tied("false", "true"), std::nullopt);
  EXPECT_EQ(tied("true", "true"), true);
  EXPECT_EQ(tied("false", "false"), false);
  EXPECT_EQ(tied("null", "true"), true);
  EXPECT_EQ(tied("false", "null"), false);
}

TEST_F(ModelConfigTest, LooksNowhereButInTheFileAndItsText) {
  for (const char* const json :
       {R"({"vision_config":{"logit_scale":2.0}})", R"({"text_config":{"rope":{"logit_scale":2.0}}})",
        R"({"text_config":[{"logit_scale":2.0}]})", R"({"a":{"text_config":{"logit_scale":2.0}}})",
        R"({"a":[2.0],"text_config":{"text_config":{"logit_scale":2.0}}})"}) {
    EXPECT_TRUE(read(json).transform.is_identity()) << json;
  }
  // Of a key that is there twice, the last counts.
  EXPECT_EQ(read(R"({"logit_scale":2.0,"logit_scale":4.0})").transform.scale, 4.0F);
  EXPECT_TRUE(read(R"({"text_config":{"logit_scale":2.0},"text_config":{}})").transform.is_identity());
  EXPECT_TRUE(read(R"({"text_config":{"logit_scale":2.0},"text_config":3})").transform.is_identity());
}

TEST_F(ModelConfigTest, PassesOverWhatOnlyPythonTakesForNumbers) {
  const ModelConfig config = read(
      R"({"time_step_limit":[0.0,Infinity],"a":-Infinity,"b":{"c":NaN},"_name_or_path":"to/NaN \"Infinity",)"
      R"("logit_scale":2.0})");
  EXPECT_EQ(config.name, "NaN \"Infinity");
  EXPECT_EQ(config.transform.scale, 2.0F);
  EXPECT_THAT(refusal(R"({"logit_scale":Infinity})"),
              HasSubstr("config.json: softmax layer: the scale of the logits is infinite"));
  EXPECT_THAT(refusal(R"({"logit_scale":-Infinity})"), HasSubstr("the scale of the logits is -infinite"));
  EXPECT_THAT(refusal(R"({"final_logit_softcapping":NaN})"), HasSubstr("the soft cap is NaN"));
  // What follows stays at its byte.
  EXPECT_THAT(refusal(R"({"a":NaN,"b":-Infinity,x})"), HasSubstr("is not valid JSON at byte 24"));
  for (const char* const json : {R"({NaN:1})", R"({"a":xNaN})", R"({"a":1Infinity})", R"({"a":-NaN})",
                                 R"({"a":NaN1})", R"({"a":NaNNaN})"}) {
    EXPECT_THAT(refusal(json), HasSubstr("config.json: is not valid JSON at byte")) << json;
  }
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
  EXPECT_THAT(refusal("3"), HasSubstr("config.json: is not a JSON object"));
  EXPECT_THAT(refusal(R"({"a":1e999})"), HasSubstr("config.json: is not valid JSON at byte"));
  EXPECT_THAT(refusal(R"({"logit_scale":{"a":1}})"),
              HasSubstr(R"("logit_scale" is an object, expected a number)"));
  EXPECT_THAT(refusal(R"({"text_config":{"_name_or_path":[1]}})"),
              HasSubstr(R"("_name_or_path" is an array, expected a text)"));
}

TEST_F(ModelConfigTest, SurvivesNestingAsDeepAsAFileMayBeLong) {
  constexpr std::size_t kDepth = ModelConfig::max_bytes / 2 - 50;
  const std::string nested = std::string(kDepth, '[') + std::string(kDepth, ']');
  EXPECT_THAT(refusal(R"({"logit_scale":)" + nested + "}"),
              HasSubstr(R"("logit_scale" is an array, expected a number)"));
  EXPECT_EQ(read(R"({"a":)" + nested + R"(,"logit_scale":2.0})").transform.scale, 2.0F);
  EXPECT_THAT(refusal(R"({"a":)" + std::string(ModelConfig::max_bytes - 5, '[')),
              HasSubstr("is not valid JSON at byte"));
}

}  // namespace
}  // namespace topksoftmax
