// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/model_layer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/gguf_writer.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::GgufWriter;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ModelLayerTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::vector<TensorView>& tensors) const {
    write_safetensors(folder_.path() / name, tensors, {{"name", "a model"}});
    return folder_.path() / name;
  }

  testing::TemporaryFolder folder_;
  std::vector<float> six_ = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  std::vector<Eigen::bfloat16> rounded_ = std::vector<Eigen::bfloat16>(6, Eigen::bfloat16(0.5F));
};

TEST_F(ModelLayerTest, OpensAHeadFileAsItIsStored) {
  const ModelLayer model =
      open_model_layer(write("head.safetensors", {tensor_view("weight", {3, 2}, rounded_)}));
  EXPECT_EQ(model.name, "a model");
  EXPECT_EQ(model.layer.weight_type(), WeightType::bfloat16);
  EXPECT_EQ(model.layer.vocab(), 3U);
  EXPECT_THAT(model.token_of_row, IsEmpty());
}

TEST_F(ModelLayerTest, OpensAFolderAndEachFileThatNamesItsTensors) {
  write("model.safetensors", {tensor_view("lm_head.weight", {3, 2}, six_)});
  folder_.write("config.json", R"({"_name_or_path":"tiny","final_logit_softcapping":30.0})");
  folder_.write("model.safetensors.index.json", R"({"weight_map":{"lm_head.weight":"model.safetensors"}})");
  for (const std::filesystem::path& path : {folder_.path(), folder_.path() / "model.safetensors",
                                            folder_.path() / "model.safetensors.index.json"}) {
    const ModelLayer model = open_model_layer(path);
    EXPECT_EQ(model.name, "tiny");
    EXPECT_EQ(model.layer.weights()(2, 1), 6.0F) << path;
    EXPECT_EQ(model.layer.transform(), (LogitTransform{.soft_cap = 30.0F})) << path;
  }
}

TEST_F(ModelLayerTest, TellsWhichTokensTheRowsAre) {
  const std::vector<std::int64_t> d2t = {0, 3, 5};
  const ModelLayer model = open_model_layer(write(
      "model.safetensors", {tensor_view("lm_head.weight", {3, 2}, six_), tensor_view("d2t", {3}, d2t)}));
  EXPECT_THAT(model.token_of_row, ElementsAre(0, 4, 7));
}

TEST_F(ModelLayerTest, TellsWhichTokensTheRowsOfAGgufFileAre) {
  const std::vector<std::int64_t> ids = {0, 4, 7};
  GgufWriter writer;
  writer.tensor("output.weight", {2, 3}, 0,
                {reinterpret_cast<const char*>(six_.data()), six_.size() * sizeof(float)});
  writer.tensor("d2t", {3}, 27, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0])});
  EXPECT_THAT(open_model_layer(folder_.write("draft", writer.bytes())).token_of_row, ElementsAre(0, 4, 7));
}

TEST_F(ModelLayerTest, OpensAGgufFileWhateverItsName) {
  GgufWriter writer;
  writer.value("general.architecture", "gemma2").value("general.name", "small");
  writer.tensor("token_embd.weight", {2, 3}, 0,
                {reinterpret_cast<const char*>(six_.data()), six_.size() * sizeof(float)});
  const ModelLayer model = open_model_layer(folder_.write("blob", writer.bytes()));
  EXPECT_EQ(model.name, "small");
  EXPECT_EQ(model.layer.weights()(2, 0), 5.0F);
  EXPECT_EQ(model.layer.transform(), (LogitTransform{.soft_cap = 30.0F}));
  EXPECT_THAT(model.token_of_row, IsEmpty());
}

TEST_F(ModelLayerTest, SaysWhatIsWrong) {
  const auto refusal = [](const std::filesystem::path& path) {
    return error_of([&] { open_model_layer(path); });
  };
  EXPECT_THAT(refusal(folder_.path() / "none"), HasSubstr("none: cannot open"));
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("is this the folder of a model?"));
  EXPECT_THAT(refusal(folder_.write("gguf", "GGUF")), HasSubstr("gguf: the header"));
  EXPECT_THAT(refusal(folder_.write("text", "some text that is no model")),
              HasSubstr("is a text file, not a safetensors file"));
  EXPECT_THAT(refusal(write("other", {tensor_view("x", {3, 2}, six_)})), HasSubstr("has no output layer"));
}

}  // namespace
}  // namespace topksoftmax
