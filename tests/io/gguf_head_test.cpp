// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/gguf_head.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "support/errors.hpp"
#include "support/gguf_writer.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::number_bytes;

class GgufHeadTest : public ::testing::Test {
 protected:
  GgufHead head_of(const GgufWriter& writer) {
    const GgufFile file = GgufFile::open(folder_.write("model.gguf", writer.bytes()));
    storage_ = file.storage();
    return find_gguf_head(file);
  }

  /// The transform of a file of this architecture with this entry, if it is named.
  LogitTransform transform_of(const std::string& architecture, const std::string& key = "", float value = 0) {
    GgufWriter writer = embedding();
    writer.value("general.architecture", architecture);
    if (!key.empty()) writer.value(architecture + "." + key, value);
    return head_of(writer).transform;
  }

  static GgufWriter embedding() {
    GgufWriter writer;
    writer.tensor("token_embd.weight", {32, 5}, 8, std::string(5 * 34, 'e'));
    return writer;
  }

  testing::TemporaryFolder folder_;
  std::shared_ptr<const void> storage_;
};

TEST_F(GgufHeadTest, IsTheOutputLayer) {
  GgufWriter writer = embedding();
  writer.tensor("output.weight", {4, 6}, 1, std::string(48, 'w'))
      .tensor("output.bias", {6}, 0, std::string(24, 'b'))
      .value("general.name", "Tiny");
  const GgufHead head = head_of(writer);
  EXPECT_EQ(head.name, "Tiny");
  EXPECT_FALSE(head.tied);
  EXPECT_EQ(head.vocab(), 6U);
  EXPECT_EQ(head.dim(), 4U);
  EXPECT_EQ(head.weight.type, GgmlType::float16);
  EXPECT_EQ(head.weight.bytes.front(), std::byte{'w'});
  ASSERT_TRUE(head.bias);
  EXPECT_EQ(head.bias->bytes.size(), 24U);
  EXPECT_TRUE(head.transform.is_identity());
}

TEST_F(GgufHeadTest, IsTheEmbeddingWhereThatIsTied) {
  const GgufHead head = head_of(embedding());
  EXPECT_EQ(head.name, "model");
  EXPECT_TRUE(head.tied);
  EXPECT_THAT(head.weight.shape, ElementsAre(5U, 32U));
  EXPECT_EQ(head.weight.type, GgmlType::q8_0);
  EXPECT_FALSE(head.bias);
}

TEST_F(GgufHeadTest, IsNotGuessedFromAPartOfAModel) {
  const auto part = [](std::uint32_t number, bool has_output) {
    GgufWriter writer = embedding();
    if (has_output) writer.tensor("output.weight", {4, 6}, 1, std::string(48, 'w'));
    return writer.value("split.no", number).value("split.count", std::uint32_t{2});
  };
  for (const GgufWriter& writer : {part(0, false), part(1, false), part(1, true)}) {
    EXPECT_THAT(error_of([&] { head_of(writer); }), HasSubstr("is one of the 2 files of a model"));
  }
  EXPECT_EQ(head_of(part(0, true)).vocab(), 6U);  // the first has the metadata
  EXPECT_EQ(head_of(embedding().value("split.count", std::uint32_t{1})).vocab(), 5U);
}

TEST_F(GgufHeadTest, HasWhatTellsWhichTokensTheRowsAre) {
  const auto draft = [](const std::string& name, std::uint64_t values) {
    GgufWriter writer = embedding();
    writer.tensor(name, {values}, 27, std::string(values * 8, '\0'));
    return writer;
  };
  for (const std::string name : {"d2t", "d2t.weight"}) {
    const GgufHead head = head_of(draft(name, 3).tensor("output.weight", {4, 3}, 1, std::string(24, 'w')));
    ASSERT_TRUE(head.d2t);
    EXPECT_EQ(head.d2t->name, name);
    EXPECT_THAT(error_of([&] {
                  head_of(draft(name, 3).tensor("output.weight", {4, 2}, 1, std::string(16, 'w')));
                }),
                HasSubstr("tensor \"" + name + "\": shape is [3], expected [2]"));
    EXPECT_FALSE(head_of(draft(name, 5)).d2t) << "the embedding has the model's own tokens";
  }
}

TEST_F(GgufHeadTest, HasTheTransformOfItsArchitecture) {
  EXPECT_TRUE(transform_of("llama").is_identity());
  EXPECT_EQ(transform_of("gemma2", "final_logit_softcapping", 20.0F), (LogitTransform{.soft_cap = 20.0F}));
  EXPECT_EQ(transform_of("gemma2"), (LogitTransform{.soft_cap = 30.0F}));
  EXPECT_TRUE(transform_of("gemma2", "final_logit_softcapping", 0.0F).is_identity());
  EXPECT_TRUE(transform_of("gemma3").is_identity());
  EXPECT_EQ(transform_of("command-r", "logit_scale", 0.0625F), (LogitTransform{.scale = 0.0625F}));
  EXPECT_EQ(transform_of("cohere2", "logit_scale", 0.25F), (LogitTransform{.scale = 0.25F}));
  EXPECT_EQ(transform_of("granite", "logit_scale", 8.0F), (LogitTransform{.scale = 0.125F}));
  EXPECT_EQ(transform_of("granitemoe", "logit_scale", 16.0F), (LogitTransform{.scale = 0.0625F}));
  EXPECT_EQ(transform_of("minicpm", "logit_scale", 8.0F), (LogitTransform{.scale = 0.125F}));
  EXPECT_EQ(transform_of("minicpm"), (LogitTransform{.scale = 8.0F})) << "256 to the dimension, 32";
  EXPECT_TRUE(transform_of("minicpm", "logit_scale", 0.0F).is_identity());
  EXPECT_TRUE(transform_of("granite").is_identity());
  EXPECT_TRUE(transform_of("granite", "logit_scale", 0.0F).is_identity());
  EXPECT_FLOAT_EQ(transform_of("grok").scale, 1.0F / std::sqrt(3.0F));
  EXPECT_EQ(transform_of("grok", "logit_scale", 0.5F), (LogitTransform{.scale = 0.5F}));
}

TEST_F(GgufHeadTest, RefusesATransformThatIsNone) {
  for (const float value :
       {-1.0F, 1e-20F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(error_of([&] { transform_of("command-r", "logit_scale", value); }),
                HasSubstr("model.gguf: softmax layer: the scale of the logits is"));
    EXPECT_THAT(error_of([&] { transform_of("gemma2", "final_logit_softcapping", value); }),
                HasSubstr("model.gguf: softmax layer: the soft cap is"));
  }
  GgufWriter huge = embedding();
  huge.value("general.architecture", "a").value("a.logit_scale", 12, number_bytes(1e300));
  EXPECT_THAT(error_of([&] { head_of(huge); }), HasSubstr("the scale of the logits is inf"));
  GgufWriter text = embedding();
  text.value("general.architecture", "a").value("a.logit_scale", "large");
  EXPECT_THAT(error_of([&] { head_of(text); }),
              HasSubstr("metadata \"a.logit_scale\" is a string, expected a number"));
}

TEST_F(GgufHeadTest, RefusesWhatIsNoHead) {
  EXPECT_THAT(error_of([&] { head_of(GgufWriter()); }),
              HasSubstr("model.gguf: has neither a tensor \"output.weight\" nor \"token_embd.weight\""));
  EXPECT_THAT(error_of([&] { head_of(GgufWriter().tensor("output.weight", {4}, 0, std::string(16, 'w'))); }),
              HasSubstr("tensor \"output.weight\": shape is [4], expected [V, d]"));
  EXPECT_THAT(error_of([&] {
                head_of(GgufWriter().tensor("output.weight", {256, 2}, 16, std::string(132, 'w')));
              }),
              HasSubstr("is of ggml's type 16, which is not known here; layers are read from F32"));
  EXPECT_THAT(error_of([&] { head_of(embedding().tensor("output.bias", {4}, 0, std::string(16, 'b'))); }),
              HasSubstr("tensor \"output.bias\": shape is [4], expected [5]"));
}

}  // namespace
}  // namespace topksoftmax
