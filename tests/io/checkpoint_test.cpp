// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  SoftmaxLayer layer_of(const std::vector<TensorView>& tensors) const {
    write_safetensors(folder_.path() / "model.safetensors", tensors);
    return open_checkpoint_layer(folder_.path() / "model.safetensors");
  }

  std::string refusal(const std::vector<TensorView>& tensors) const {
    return error_of([&] { layer_of(tensors); });
  }

  testing::TemporaryFolder folder_;
  std::vector<float> six_ = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  std::vector<float> three_ = {7.0F, 8.0F, 9.0F};
  std::vector<Eigen::bfloat16> rounded_ = std::vector<Eigen::bfloat16>(6, Eigen::bfloat16(0.5F));
};

TEST_F(CheckpointTest, TakesTheHeadWhereItLies) {
  const SoftmaxLayer layer =
      layer_of({tensor_view("model.embed_tokens.weight", {2, 3}, six_),
                tensor_view("lm_head.weight", {3, 2}, rounded_), tensor_view("lm_head.bias", {3}, three_)});
  EXPECT_EQ(layer.vocab(), 3U);
  EXPECT_EQ(layer.dim(), 2U);
  EXPECT_EQ(layer.weight_type(), WeightType::bfloat16);
  EXPECT_EQ(layer.weights()(2, 1), 0.5F);
  EXPECT_EQ(layer.biases()[1], 8.0F);
  EXPECT_TRUE(layer.transform().is_identity());
}

TEST_F(CheckpointTest, TakesTheEmbeddingThatAHeadIsTiedTo) {
  for (const char* const name : {"model.embed_tokens.weight", "transformer.wte.weight", "wte.weight",
                                 "model.decoder.embed_tokens.weight", "model.shared.weight"}) {
    const SoftmaxLayer layer = layer_of({tensor_view(name, {2, 3}, six_), tensor_view("x", {3}, three_)});
    EXPECT_EQ(layer.weights()(1, 0), 4.0F) << name;
    EXPECT_FALSE(layer.has_bias());
  }
}

TEST_F(CheckpointTest, TakesAFolderWithItsTransform) {
  write_safetensors(folder_.path() / "model.safetensors",
                    std::vector{tensor_view("model.embed_tokens.weight", {3, 2}, six_)});
  folder_.write("config.json", R"({"text_config":{"logits_scaling":4.0,"final_logit_softcapping":30.0}})");
  const SoftmaxLayer layer = open_checkpoint_layer(folder_.path());
  EXPECT_EQ(layer.transform(), (LogitTransform{.scale = 0.25F, .soft_cap = 30.0F}));
  EXPECT_EQ(layer.vocab(), 3U);
}

TEST_F(CheckpointTest, TakesABiasThatIsARow) {
  const SoftmaxLayer layer = layer_of(
      {tensor_view("model.shared.weight", {3, 2}, six_), tensor_view("final_logits_bias", {1, 3}, three_)});
  EXPECT_EQ(layer.biases()[2], 9.0F);
}

TEST_F(CheckpointTest, TakesWeightsAndBiasFromSeveralFiles) {
  write_safetensors(folder_.path() / "1.safetensors",
                    std::vector{tensor_view("lm_head.weight", {3, 2}, six_)});
  write_safetensors(folder_.path() / "2.safetensors", std::vector{tensor_view("lm_head.bias", {3}, three_)});
  const SoftmaxLayer layer = open_checkpoint_layer(
      folder_.write("model.safetensors.index.json",
                    R"({"weight_map":{"lm_head.weight":"1.safetensors","lm_head.bias":"2.safetensors"}})"));
  for (const char* const name : {"1.safetensors", "2.safetensors"})
    std::filesystem::remove(folder_.path() / name);
  EXPECT_EQ(layer.weights()(2, 1), 6.0F);
  EXPECT_EQ(layer.biases()[0], 7.0F);
}

TEST_F(CheckpointTest, TakesOtherNames) {
  write_safetensors(folder_.path() / "f",
                    std::vector{tensor_view("out.w", {3, 2}, six_), tensor_view("out.b", {3}, three_)});
  const SafetensorsShards checkpoint = SafetensorsShards::open(folder_.path() / "f");
  EXPECT_FALSE(checkpoint_layer(checkpoint, "out.w").has_bias());
  EXPECT_EQ(checkpoint_layer(checkpoint, "out.w", "out.b").biases()[2], 9.0F);
  EXPECT_THAT(error_of([&] { checkpoint_layer(checkpoint, "out.w", "out.c"); }),
              HasSubstr(R"(f: has no tensor "out.c"; nearest by name: "out.b", "out.w")"));
}

TEST_F(CheckpointTest, TakesAHeadThatLiesBesideTensorsOfTypesThatAreNotRead) {
  // As DeepSeek-V3 has it.
  const std::string header =
      R"({"lm_head.weight":{"dtype":"BF16","shape":[3,2],"data_offsets":[4,16]},)"
      R"("model.layers.0.weight":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  const std::string weights(reinterpret_cast<const char*>(rounded_.data()), 12);
  const auto path = folder_.write("model.safetensors", length + header + "abcd" + weights);
  EXPECT_EQ(open_checkpoint_layer(path).weights()(2, 1), 0.5F);
  EXPECT_THAT(
      error_of([&] { checkpoint_layer(SafetensorsShards::open(path), "model.layers.0.weight"); }),
      HasSubstr(R"(tensor "model.layers.0.weight": is stored as F8_E4M3, which this library does not read)"));
}

TEST_F(CheckpointTest, SaysWhichFileHasWhatIsNoToken) {
  const std::vector<std::int64_t> d2t = {0, 4, -3};
  write_safetensors(folder_.path() / "draft",
                    std::vector{tensor_view("lm_head.weight", {3, 2}, six_), tensor_view("d2t", {3}, d2t)});
  const SafetensorsShards checkpoint = SafetensorsShards::open(folder_.path() / "draft");
  EXPECT_THAT(error_of([&] { checkpoint_token_ids(checkpoint, find_checkpoint_head(checkpoint), 3); }),
              HasSubstr("draft: tensor \"d2t\": has -3 for row 2; with the row's number it must be an id"));
}

TEST_F(CheckpointTest, RefusesWhatIsNoHead) {
  const std::vector<std::int8_t> bytes(6, 1);
  const std::vector<std::int32_t> integers(6, 1);
  EXPECT_THAT(
      refusal({tensor_view("x", {3}, three_)}),
      HasSubstr("model.safetensors: has no output layer by a name that is known; it has no matrix at all"));
  EXPECT_THAT(refusal({tensor_view("lm_head.weight", {6}, six_)}),
              HasSubstr("shape is [6], expected [*, *]"));
  EXPECT_THAT(refusal({tensor_view("lm_head.weight", {3, 2}, bytes)}),
              HasSubstr("is stored as I8, expected F32, F16 or BF16"));
  EXPECT_THAT(refusal({tensor_view("lm_head.weight", {3, 2}, integers)}),
              HasSubstr("is stored as I32, expected"));
  EXPECT_THAT(
      refusal({tensor_view("lm_head.weight", {2, 3}, six_), tensor_view("lm_head.bias", {3}, three_)}),
      HasSubstr("tensor \"lm_head.bias\": shape is [3], expected [2]"));
  EXPECT_THAT(
      refusal({tensor_view("lm_head.weight", {2, 3}, six_), tensor_view("lm_head.bias", {3, 1}, three_)}),
      HasSubstr("shape is [3, 1], expected [1, 2]"));
  EXPECT_THAT(refusal({tensor_view("lm_head.weight", {0, 3}, std::vector<float>())}),
              HasSubstr("W has 0 rows"));
}

}  // namespace
}  // namespace topksoftmax
