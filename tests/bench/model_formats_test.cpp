// SPDX-License-Identifier: Apache-2.0
//
// Heads and contexts in the files that people have: models' folders, GGUF, and NumPy's arrays. What the tool
// answers from them is what it answers from a head file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/program.hpp"
#include "support/gguf_writer.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::ProgramRun;
using testing::random_matrix;
using testing::random_vector;
using testing::run_tool;
using testing::values;

constexpr std::size_t kVocab = 120;
constexpr std::size_t kDim = 8;
constexpr std::size_t kContexts = 60;

template <class Values>
std::string bytes_of(const Values& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ModelFormats : public ::testing::Test {
 protected:
  void SetUp() override {
    write_safetensors(path("head"),
                      std::vector{tensor_view("weight", {kVocab, kDim}, values(weight_)),
                                  tensor_view("bias", {kVocab}, span(bias_)),
                                  tensor_view("contexts.test", {kContexts, kDim}, values(contexts_))});
    write_safetensors(path("plain"), std::vector{tensor_view("weight", {kVocab, kDim}, values(weight_))});
    write_safetensors(path("contexts"), std::vector{tensor_view("h", {kContexts, kDim}, values(contexts_))});
  }

  static std::span<const float> span(const Eigen::VectorXf& vector) {
    return {vector.data(), static_cast<std::size_t>(vector.size())};
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  /// What the tool answers over this head, and maybe with these options; every context.
  std::string answers(const std::string& head, const std::string& contexts = "contexts") const {
    const ProgramRun run = run_tool("ask --head " + path(head) + " --contexts " + path(contexts));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  }

  void expect_refused(const std::string& arguments, const std::string& part) const {
    const ProgramRun run = run_tool("ask " + arguments);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(part));
  }

  testing::TemporaryFolder folder_;
  RowMajorMatrix weight_ = random_matrix(kVocab, kDim, 1, 0.5F);
  Eigen::VectorXf bias_ = random_vector(kVocab, 2);
  RowMajorMatrix contexts_ = clustered_contexts(kContexts, kDim, 5, 3);
};

// The rows of an EAGLE-3 draft are every third token of the model.
TEST_F(ModelFormats, AnswersByTheTokensThatADraftsRowsAre) {
  std::filesystem::create_directory(folder_.path() / "draft");
  std::vector<std::int64_t> d2t(kVocab);
  for (std::size_t row = 0; row < kVocab; ++row) d2t[row] = static_cast<std::int64_t>(2 * row);
  const auto write = [&](std::size_t rows) {
    write_safetensors(
        path("draft/model.safetensors"),
        std::vector{tensor_view("lm_head.weight", {kVocab, kDim}, values(weight_)),
                    tensor_view("lm_head.bias", {kVocab}, span(bias_)),
                    tensor_view("d2t", {rows}, std::span<const std::int64_t>(d2t).first(rows))});
  };
  write(kVocab);
  std::istringstream of_rows(answers("head"));
  std::istringstream of_tokens(answers("draft"));
  std::string answer_of_rows;
  std::string answer_of_tokens;
  for (std::size_t i = 0; i < kContexts * 5; ++i) {
    of_rows >> answer_of_rows;
    of_tokens >> answer_of_tokens;
    EXPECT_EQ(std::stoul(answer_of_tokens), 3 * std::stoul(answer_of_rows));
    of_rows >> answer_of_rows;
    of_tokens >> answer_of_tokens;
    EXPECT_EQ(answer_of_tokens, answer_of_rows);
  }
  EXPECT_THAT(run_tool("inspect " + path("draft")).out, HasSubstr("rows are tokens of the model by d2t"));
  // Whatever the config says, and where its layer is named by hand.
  const std::string of_draft = answers("draft");
  folder_.write("draft/config.json", R"({"tie_word_embeddings":true})");
  EXPECT_EQ(answers("draft"), of_draft);
  const std::string by_hand = " --tensor lm_head.weight --bias lm_head.bias --contexts " + path("contexts");
  EXPECT_EQ(run_tool("ask --head " + path("draft") + by_hand).out, of_draft);
  std::vector<std::int64_t> ids(kVocab);
  for (std::size_t row = 0; row < kVocab; ++row) ids[row] = static_cast<std::int64_t>(3 * row);
  GgufWriter gguf;
  gguf.tensor("output.weight", {kDim, kVocab}, 0, bytes_of(values(weight_)));
  gguf.tensor("output.bias", {kVocab}, 0, bytes_of(span(bias_)));
  gguf.tensor("d2t", {kVocab}, 27, bytes_of(ids));
  folder_.write("draft.gguf", gguf.bytes());
  EXPECT_EQ(answers("draft.gguf"), of_draft);
  EXPECT_THAT(run_tool("inspect " + path("draft.gguf")).out,
              HasSubstr("rows are tokens of the model by d2t"));
  std::filesystem::remove(path("draft/config.json"));
  std::swap(d2t[3], d2t[5]);
  write(kVocab);
  expect_refused("--head " + path("draft") + " --contexts " + path("contexts"),
                 path("draft") + ": mapped: row 4 is token 12, row 3 before it token 13");
  write(kVocab - 1);
  expect_refused("--head " + path("draft") + " --contexts " + path("contexts"), "tensor \"d2t\"");
}

TEST_F(ModelFormats, TakesAModelsFolder) {
  std::filesystem::create_directory(folder_.path() / "model");
  write_safetensors(
      path("model/model.safetensors"),
      std::vector{tensor_view("lm_head.weight", {kVocab, kDim}, values(weight_)),
                  tensor_view("lm_head.bias", {kVocab}, span(bias_)),
                  tensor_view("other", {kVocab, kDim}, values(random_matrix(kVocab, kDim, 9, 1.0F)))});
  EXPECT_EQ(answers("model"), answers("head"));
  EXPECT_EQ(answers("model/model.safetensors"), answers("head"));
  folder_.write("model/config.json", R"({"_name_or_path":"org/tiny","final_logit_softcapping":2.0})");
  EXPECT_NE(answers("model"), answers("head"));
  const ProgramRun run = run_tool("inspect " + path("model") + " --json -");
  const nlohmann::json told = nlohmann::json::parse(run.out);
  EXPECT_EQ(told.at("name"), "tiny");
  EXPECT_EQ(told.at("weight"), "lm_head.weight");
  EXPECT_EQ(told.at("bias"), "lm_head.bias");
  EXPECT_EQ(told.at("soft_cap"), 2.0);
  EXPECT_THAT(run_tool("inspect " + path("model")).out,
              HasSubstr("layer: lm_head.weight [120, 8], F32, with the bias"));
  // Named by hand.
  const std::string by_hand = " --contexts " + path("contexts") + " --tensor lm_head.weight";
  std::filesystem::remove(path("model/config.json"));
  for (const std::string bias : {"", " --bias lm_head.bias"}) {  // it is found where it is not named
    EXPECT_EQ(run_tool("ask --head " + path("model") + by_hand + bias).out, answers("head"));
  }
  expect_refused("--head " + path("model") + " --tensor nothing --contexts " + path("contexts"),
                 "has no tensor \"nothing\"");
}

TEST_F(ModelFormats, TakesGguf) {
  GgufWriter writer;
  writer.value("general.architecture", "llama").value("general.name", "small");
  writer.tensor("output.weight", {kDim, kVocab}, 0, bytes_of(values(weight_)));
  writer.tensor("output.bias", {kVocab}, 0, bytes_of(span(bias_)));
  folder_.write("model.gguf", writer.bytes());
  EXPECT_EQ(answers("model.gguf"), answers("head"));
  const ProgramRun run = run_tool("inspect " + path("model.gguf"));
  EXPECT_THAT(
      run.out,
      HasSubstr("a model in GGUF: small\nlayer: output.weight [120, 8], F32, with the bias output.bias\n"));
  const ProgramRun measured = run_tool("measure --head " + path("model.gguf") + " --contexts " +
                                       path("contexts") + " --backends fused --rounds 1 --json -");
  const nlohmann::json report = nlohmann::json::parse(measured.out);
  EXPECT_EQ(report.at("head").at("name"), "small");
  EXPECT_EQ(report.at("head").at("train"), 48);
  EXPECT_EQ(report.at("head").at("test"), 12);
  EXPECT_EQ(report.at("head").at("concentration").at("energy").size(), 4U);
  expect_refused("--head " + path("model.gguf") + " --tensor x --contexts " + path("contexts"),
                 "is found without --tensor");
}

// A head file has more than a layer, which the names of tensors alone would lose.
TEST_F(ModelFormats, FindsTheLayerOfAHeadFileItself) {
  for (const char* const named : {" --tensor weight", " --bias bias"}) {
    expect_refused("--head " + path("head") + named,
                   "head: the layer of a head file is found without --tensor and --bias");
  }
}

// Names in files may be anyone's.
TEST_F(ModelFormats, ShowsNoNameThatSteersATerminal) {
  GgufWriter writer;
  writer.value("general.architecture", "llama").value("general.name", "a\x1b[31m\nb");
  writer.tensor("output.weight", {kDim, kVocab}, 0, bytes_of(values(weight_)));
  folder_.write("model.gguf", writer.bytes());
  EXPECT_THAT(run_tool("inspect " + path("model.gguf")).out, HasSubstr("a model in GGUF: a?[31m?b\n"));
  const ProgramRun measured =
      run_tool("measure --head " + path("model.gguf") + " --contexts " + path("contexts") +
               " --backends fused --rounds 1 --json " + path("out.json"));
  EXPECT_THAT(measured.out, HasSubstr("a?[31m?b: V = 120"));
  const nlohmann::json report = nlohmann::json::parse(testing::read_text(path("out.json")));
  EXPECT_EQ(report.at("head").at("name"), "a?[31m?b");
}

TEST_F(ModelFormats, TakesNumpysArrays) {
#ifndef TOPKSOFTMAX_PYTHON
  GTEST_SKIP() << "there is no Python with NumPy";
#else
  folder_.write("weight.raw", bytes_of(values(weight_)));
  folder_.write("bias.raw", bytes_of(span(bias_)));
  folder_.write("contexts.raw", bytes_of(values(contexts_)));
  const std::string sizes =
      " " + std::to_string(kVocab) + " " + std::to_string(kDim) + " " + std::to_string(kContexts);
  ASSERT_EQ(
      std::system(
          (TOPKSOFTMAX_PYTHON " " TOPKSOFTMAX_NUMPY_ARRAYS " " + folder_.path().string() + sizes).c_str()),
      0);
  const std::string expected = answers("head");
  for (const char* const contexts : {"contexts.npy", "columns.npy", "doubles.npy", "packed.npz"}) {
    EXPECT_EQ(answers("head", contexts), expected) << contexts;
  }
  EXPECT_EQ(answers("packed.npz"), expected);
  EXPECT_EQ(answers("plain.npz"), expected);
  EXPECT_EQ(answers("weight.npy"), answers("plain"));
  expect_refused("--head " + path("head") + " --contexts " + path("bias.npy"),
                 "bias.npy: has the shape [120]; contexts must be [N, 8]");
  // contexts_test alone is asked, of a file that has both.
  EXPECT_EQ(answers("head", "plain.npz").size() * 2 / 100, expected.size() / 100);
  const ProgramRun array = run_tool("inspect " + path("weight.npy"));
  EXPECT_EQ(array.exit_code, 0) << array.err;
  EXPECT_THAT(array.out, HasSubstr("weight.npy: an array of NumPy's\n"));
  EXPECT_THAT(array.out, HasSubstr("\nweight   F32  [120, 8] "));
  const nlohmann::json arrays = nlohmann::json::parse(run_tool("inspect --json - " + path("plain.npz")).out);
  EXPECT_EQ(arrays.at("is"), "numpy");
  EXPECT_GE(arrays.at("tensors").size(), 3U);
  EXPECT_EQ(run_tool("inspect --verify " + path("weight.npy")).exit_code, 2);
  EXPECT_THAT(run_tool("measure --head " + path("plain.npz") + " --backends fused --rounds 1").out,
              HasSubstr("30 training contexts, measured on 30 of 30"));
  for (const char* const only_test : {"tested.npz", "underlined.npz"}) {
    EXPECT_THAT(run_tool("measure --head " + path(only_test) + " --backends fused --rounds 1").out,
                HasSubstr("0 training contexts, measured on 60 of 60"))
        << only_test;
  }
  EXPECT_THAT(run_tool("measure --head " + path("halves.npy") + " --contexts " + path("contexts.npy") +
                       " --backends fused --rounds 1")
                  .out,
              HasSubstr("V = 120, d = 8, float16"));
  const std::string ask = "--head " + path("head") + " --contexts ";
  expect_refused(ask + path("swapped.npy"), "is of type \">f4\", which is not read");
  expect_refused(ask + path("objects.npy"), "is of type \"|O\", which is not read");
  expect_refused(ask + path("cube.npy"), "is in column-major order and not a matrix");
  expect_refused("--head " + path("weight.npy") + " --tensor x --contexts " + path("contexts"), "\"x\"");
  // Cut off anywhere, and with nonsense in the header.
  const std::string whole = testing::read_text(path("contexts.npy"));
  for (const std::size_t size : {7U, 11U, 60U, 128U, 200U}) {
    folder_.write("cut.npy", whole.substr(0, size));
    expect_refused(ask + path("cut.npy"), "cut.npy: array \"cut\" has ");
  }
  const std::string archive = testing::read_text(path("plain.npz"));
  folder_.write("cut.npz", archive.substr(0, archive.size() / 2));
  expect_refused(ask + path("cut.npz"), "cut.npz: is not a whole .npz file");
  std::string flipped = archive;
  flipped[archive.find("contexts_test") + 1000] ^= 1;
  folder_.write("flipped.npz", flipped);
  expect_refused(ask + path("flipped.npz"), "cannot be unpacked");
  expect_refused(ask + path("shared.npz"), " is damaged");
  expect_refused(ask + path("twice.npz"), "array \"contexts\" is there twice");
  expect_refused(ask + path("weights.npz"),
                 "holds no contexts; its only matrix, \"W\", has the name of weights");
  expect_refused(ask + path("endless.npy"), "has the shape [0, 9223372036854775808] of F32, and 0 bytes");
  std::string huge = whole;
  expect_refused(
      "--head " + path("infinite.npy") + " --contexts " + path("contexts"),
      "infinite.npy: array \"infinite\" makes no layer: softmax layer: W at row 3, column 2 is infinite");
  expect_refused("--head " + path("beyond.npy") + " --contexts " + path("contexts"),
                 "beyond.npy: array \"beyond\" has 1e+300, which is beyond float32's range");
  huge.replace(huge.find("(60, 8)"), 7, "(9999999999999999, 99999)");
  folder_.write("huge.npy", huge);
  expect_refused(ask + path("huge.npy"), "has ");
#endif
}

TEST_F(ModelFormats, NamesTheFileOfContextsThatCannotBeMeasured) {
  const auto expect_error = [&](const std::string& part) {
    const ProgramRun run = run_tool("measure --backends fused --rounds 1 --head " + path("plain") +
                                    " --contexts " + path("h.safetensors"));
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, HasSubstr("h.safetensors: " + part));
  };
  // Of those to learn from, and of those to measure on.
  for (const Eigen::Index row : {7, 55}) {
    RowMajorMatrix bad = contexts_;
    bad(row, 3) = std::numeric_limits<float>::quiet_NaN();
    write_safetensors(path("h.safetensors"), std::vector{tensor_view("h", {kContexts, kDim}, values(bad))});
    expect_error("h[" + std::to_string(row) + ", 3] is NaN; it must be finite");
  }
  write_safetensors(path("h.safetensors"),
                    std::vector{tensor_view("h", {0, kDim}, std::span<const float>())});
  expect_error("holds no contexts");
}

TEST_F(ModelFormats, SaysWhichContextsCannotBeTaken) {
  const std::string ask = "--head " + path("head") + " --contexts ";
  write_safetensors(path("two"), std::vector{tensor_view("a", {kContexts, kDim}, values(contexts_)),
                                             tensor_view("b", {kContexts, kDim}, values(contexts_))});
  expect_refused(ask + path("two"), "which array holds contexts?");
  expect_refused(ask + path("two"), "there are \"a\", \"b\"");
  write_safetensors(path("long"), std::vector{tensor_view("h", {kDim, kContexts}, values(contexts_))});
  expect_refused(ask + path("long"), "h holds contexts of length 60; the layer's dimension is 8");
  write_safetensors(path("rows"), std::vector{tensor_view("h", {kDim, kVocab}, values(weight_))});
  expect_refused(ask + path("rows"), "the layer's dimension is 8, and W has 120 rows: is it transposed?");
  expect_refused(ask + path("nothing"), "nothing: cannot open: No such file");
  write_safetensors(path("flat"), std::vector{tensor_view("contexts", {kVocab}, span(bias_))});
  expect_refused(ask + path("flat"), "flat: has the shape [120]; contexts must be [N, 8]");
  write_safetensors(path("both"), std::vector{tensor_view("contexts", {kVocab}, span(bias_)),
                                              tensor_view("weight", {kVocab, kDim}, values(weight_))});
  expect_refused(ask + path("both"), "both: contexts has the shape [120]; contexts must be [N, 8]");
  for (const char* const weights : {"weight", "W", "lm_head", "model.embed_tokens.weight"}) {
    write_safetensors(path("weights"), std::vector{tensor_view(weights, {kVocab, kDim}, values(weight_)),
                                                   tensor_view("bias", {kVocab}, span(bias_))});
    expect_refused(ask + path("weights"), "weights: holds no contexts; its only matrix, \"" +
                                              std::string(weights) + "\", has the name of weights");
  }
  std::vector<TensorView> many;
  for (std::size_t i = 0; i < 1000; ++i) {
    many.push_back(tensor_view(std::to_string(1000 + i), {1, 1}, span(bias_).first(1)));
  }
  write_safetensors(path("many"), many);
  expect_refused(ask + path("many"), "\"1008\", \"1009\" and 990 more\n");
}

}  // namespace
}  // namespace topksoftmax
