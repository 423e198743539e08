// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/checkpoint_head.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

ModelConfig with_tied(bool tied) {
  ModelConfig config;
  config.tied = tied;
  return config;
}

class CheckpointHeadTest : public ::testing::Test {
 protected:
  SafetensorsShards with(const std::vector<std::string>& names) const {
    std::vector<TensorView> tensors;
    for (const std::string& name : names) tensors.push_back(tensor_view(name, {2, 3}, values_));
    write_safetensors(folder_.path() / "model.safetensors", tensors);
    return SafetensorsShards::open(folder_.path() / "model.safetensors");
  }

  testing::TemporaryFolder folder_;
  std::vector<float> values_ = std::vector<float>(6, 1.0F);
};

TEST_F(CheckpointHeadTest, FindsTheOutputLayerByItsNames) {
  for (const std::string layer : {"lm_head", "embed_out", "output_projection", "decoder.output_projection",
                                  "output", "language_model.lm_head"}) {
    const CheckpointHead head = find_checkpoint_head(
        with({"model.embed_tokens.weight", layer + ".weight", layer + ".bias", "x.bias"}));
    EXPECT_EQ(head.weight, layer + ".weight");
    EXPECT_EQ(head.bias, layer + ".bias");
    EXPECT_FALSE(head.tied);
  }
}

TEST_F(CheckpointHeadTest, AsksTheConfigWhetherItIsTied) {
  const SafetensorsShards both = with({"lm_head.weight", "transformer.wte.weight"});
  EXPECT_EQ(find_checkpoint_head(both).weight, "lm_head.weight");
  EXPECT_EQ(find_checkpoint_head(both, with_tied(false)).weight, "lm_head.weight");
  const CheckpointHead tied = find_checkpoint_head(both, with_tied(true));
  EXPECT_EQ(tied.weight, "transformer.wte.weight");
  EXPECT_TRUE(tied.tied);
  // Transformers may save what is shared under the layer's name alone.
  EXPECT_EQ(find_checkpoint_head(with({"lm_head.weight"}), with_tied(true)).weight, "lm_head.weight");
  const SafetensorsShards embedding = with({"shared.weight", "final_logits_bias"});
  EXPECT_EQ(find_checkpoint_head(embedding).weight, "shared.weight");
  EXPECT_EQ(find_checkpoint_head(embedding).bias, "final_logits_bias");
  EXPECT_THAT(error_of([&] { find_checkpoint_head(embedding, with_tied(false)); }),
              HasSubstr("config.json says that it is not tied to the embedding"));
}

// What ties the config of a draft is the model's: the draft's own layer has rows for fewer tokens.
TEST_F(CheckpointHeadTest, TakesADraftsLayerWhateverTheConfigSays) {
  const std::vector<std::int64_t> d2t = {0, 3};
  const auto write = [&](std::size_t values, const std::string& name = "d2t") {
    write_safetensors(
        folder_.path() / "model.safetensors",
        std::vector{tensor_view("lm_head.weight", {2, 3}, values_),
                    tensor_view("embed_tokens.weight", {2, 3}, values_),
                    tensor_view("other.weight", {3, 2}, values_),
                    tensor_view(name, {values}, std::span<const std::int64_t>(d2t).first(values))});
    return SafetensorsShards::open(folder_.path() / "model.safetensors");
  };
  for (const std::string name : {"d2t", "model.d2t"}) {
    const SafetensorsShards draft = write(2, name);
    for (const ModelConfig& config : {ModelConfig(), with_tied(false), with_tied(true)}) {
      const CheckpointHead head = find_checkpoint_head(draft, config);
      EXPECT_EQ(head.weight, "lm_head.weight");
      EXPECT_EQ(head.d2t, name);
      EXPECT_FALSE(head.tied);
    }
    EXPECT_EQ(find_d2t(draft, "lm_head.weight"), name);
    EXPECT_EQ(find_d2t(draft, "other.weight"), "");
    EXPECT_THAT(error_of([&] { find_d2t(draft, "nothing"); }), HasSubstr("has no tensor \"nothing\""));
  }
  const SafetensorsShards other = write(1);
  EXPECT_EQ(find_checkpoint_head(other, with_tied(true)).weight, "embed_tokens.weight");
  EXPECT_EQ(find_checkpoint_head(other, with_tied(true)).d2t, "");
  EXPECT_EQ(find_checkpoint_head(other).d2t, "d2t") << "checkpoint_token_ids() says what is wrong with it";
  EXPECT_EQ(find_d2t(with({"lm_head.weight"}), "lm_head.weight"), "");
}

TEST_F(CheckpointHeadTest, TakesAnOutputLayerThatIsTiedAndStoredWithOtherValues) {
  const std::filesystem::path path = folder_.path() / "model.safetensors";
  const std::vector<float> others(6, 2.0F);
  for (const TensorView& output :
       {tensor_view("lm_head.weight", {2, 3}, others), tensor_view("lm_head.weight", {3, 2}, values_)}) {
    write_safetensors(path, std::vector{output, tensor_view("shared.weight", {2, 3}, values_)});
    const CheckpointHead head = find_checkpoint_head(SafetensorsShards::open(path), with_tied(true));
    EXPECT_EQ(head.weight, "lm_head.weight");
    EXPECT_FALSE(head.tied);
  }
}

// lm_head.bias belongs to what the model ends in, whatever that is tied to, and to no other layer.
TEST_F(CheckpointHeadTest, FindsTheBiasOfAnyWeights) {
  const SafetensorsShards checkpoint = with({"other.weight", "other.bias", "lm_head.bias"});
  EXPECT_EQ(find_bias(checkpoint, "other.weight"), "other.bias");
  EXPECT_EQ(find_bias(checkpoint, "transformer.wte.weight"), "lm_head.bias");
  EXPECT_EQ(find_bias(checkpoint, "embed_out.weight"), "lm_head.bias");
  EXPECT_EQ(find_bias(checkpoint, "medusa_head.0.1.weight"), "");
  EXPECT_EQ(find_bias(checkpoint, "output_projection"), "lm_head.bias");
  EXPECT_EQ(find_bias(with({"other.weight"}), "other.weight"), "");
}

TEST_F(CheckpointHeadTest, NamesWhatCouldBeMeant) {
  std::vector<float> many(20, 1.0F);
  write_safetensors(folder_.path() / "model.safetensors",
                    std::vector{tensor_view("a", {2, 3}, values_), tensor_view("b", {10, 2}, many),
                                tensor_view("c", {20}, many), tensor_view("d", {5, 4}, many),
                                tensor_view("e", {1, 6}, values_)});
  const std::string message =
      error_of([&] { find_checkpoint_head(SafetensorsShards::open(folder_.path() / "model.safetensors")); });
  EXPECT_THAT(message, HasSubstr(R"(its matrices with most rows are "b" [10, 2], "d" [5, 4], "a" [2, 3])"));
}

TEST_F(CheckpointHeadTest, OpensAFolder) {
  with({"lm_head.weight"});
  for (const std::filesystem::path& path : {folder_.path(), folder_.path() / "model.safetensors"}) {
    const ModelCheckpoint model = open_model_checkpoint(path);
    EXPECT_TRUE(model.tensors.contains("lm_head.weight"));
    EXPECT_EQ(model.name, folder_.path().filename());
    EXPECT_EQ(model.config.tied, std::nullopt);
  }
  folder_.write("config.json", R"({"_name_or_path":"org/tiny","tie_word_embeddings":true})");
  const ModelCheckpoint model = open_model_checkpoint(folder_.path() / "");
  EXPECT_EQ(model.name, "tiny");
  EXPECT_EQ(model.config.tied, true);
  // An index comes before a file beside it, as in Transformers' folders.
  write_safetensors(folder_.path() / "part.safetensors", std::vector{tensor_view("x", {2, 3}, values_)});
  folder_.write("model.safetensors.index.json", R"({"weight_map":{"x":"part.safetensors"}})");
  EXPECT_TRUE(open_model_checkpoint(folder_.path()).tensors.contains("x"));
}

TEST_F(CheckpointHeadTest, SaysWhatAFolderLacks) {
  const auto refusal = [this] { return error_of([this] { open_model_checkpoint(folder_.path()); }); };
  EXPECT_THAT(refusal(), AllOf(HasSubstr("has neither model.safetensors nor model.safetensors.index.json"),
                               Not(HasSubstr("pickled"))));
  folder_.write("pytorch_model.bin", "x");
  EXPECT_THAT(refusal(), HasSubstr("pytorch_model.bin is pickled, which is not read"));
}

TEST_F(CheckpointHeadTest, TakesWhatIsStoredWhereTheConfigContradictsItself) {
  const auto head_with = [this](const std::string& config, const std::vector<std::string>& names) {
    with(names);
    folder_.write("config.json", config);
    const ModelCheckpoint model = open_model_checkpoint(folder_.path());
    return find_checkpoint_head(model.tensors, model.config).weight;
  };
  const std::string embedding = "language_model.model.embed_tokens.weight";
  const std::string output = "language_model.lm_head.weight";
  // As llava-onevision-qwen2-0.5b has it.
  const std::string of_text_alone =
      R"({"tie_word_embeddings":false,"text_config":{"tie_word_embeddings":true}})";
  EXPECT_EQ(head_with(of_text_alone, {embedding}), embedding);
  EXPECT_EQ(head_with(of_text_alone, {embedding, output}), output);
  EXPECT_EQ(head_with(R"({"tie_word_embeddings":true,"text_config":{"tie_word_embeddings":false}})",
                      {embedding, output}),
            output);
}

TEST_F(CheckpointHeadTest, SaysWhatTheSystemRefuses) {
  const auto refusal = [](const std::filesystem::path& path) {
    return error_of([&] { open_model_checkpoint(path); });
  };
  EXPECT_THAT(refusal(std::string(5000, 'a')), HasSubstr("aaa: cannot examine: File name too long"));
  const std::filesystem::path loop = folder_.path() / "loop";
  std::filesystem::create_symlink("loop", loop);
  EXPECT_THAT(refusal(loop), HasSubstr("loop: cannot examine: "));
  with({"lm_head.weight"});
  for (const char* const name : {"config.json", "model.safetensors.index.json"}) {
    std::filesystem::create_symlink(name, folder_.path() / name);
    EXPECT_THAT(refusal(folder_.path()), HasSubstr(std::string(name) + ": cannot examine: "));
    std::filesystem::remove(folder_.path() / name);
  }
  std::filesystem::remove(folder_.path() / "model.safetensors");
  std::filesystem::create_symlink("pytorch_model.bin", folder_.path() / "pytorch_model.bin");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("pytorch_model.bin: cannot examine: "));
  EXPECT_THAT(refusal(folder_.path() / "absent"), HasSubstr("absent: cannot open: No such file"));
}

}  // namespace
}  // namespace topksoftmax
