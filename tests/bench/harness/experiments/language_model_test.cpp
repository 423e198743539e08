// SPDX-License-Identifier: Apache-2.0
//
// What topksoftmax measures on a language model whole: the program itself is run, on a tiny model.
#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/program.hpp"
#include "support/layers.hpp"
#include "support/model_file.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax {
namespace {

using testing::ProgramRun;
using testing::random_matrix;
using testing::run_tool;
using testing::values;

constexpr std::size_t kVocab = 260;
constexpr std::size_t kDim = 8;

/// What is quick to train.
const std::string kSmallL2s = " --set l2s.clusters=4 --set l2s.budget=100";

class BenchLanguageModel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<RowMajorMatrix> matrices;
    std::vector<TensorView> tensors;
    const auto add = [&](const std::string& name, std::vector<std::size_t> shape) {
      const std::size_t cols = shape.size() > 1 ? shape[1] : 1;
      matrices.push_back(random_matrix(static_cast<Eigen::Index>(shape[0]), static_cast<Eigen::Index>(cols),
                                       static_cast<unsigned>(matrices.size() + 1), 0.4F));
      tensors.push_back(tensor_view(name, std::move(shape), values(matrices.back())));
    };
    matrices.reserve(20);
    add("weight", {kVocab, kDim});
    add("bias", {kVocab});
    add("contexts.train", {500, kDim});
    add("contexts.test", {60, kDim});
    for (const std::string layer : {"l0", "l1"}) {
      add("lstm.weight_ih_" + layer, {4 * kDim, kDim});
      add("lstm.weight_hh_" + layer, {4 * kDim, kDim});
      add("lstm.bias_ih_" + layer, {4 * kDim});
      add("lstm.bias_hh_" + layer, {4 * kDim});
    }
    std::string words = "<unk>\n<eos>\nthe\nhe\nit";
    for (std::size_t id = 5; id < kVocab; ++id) words += "\nw" + std::to_string(id);
    const std::vector<std::uint8_t> bytes(words.begin(), words.end());
    tensors.push_back(tensor_view("vocab.utf8", {bytes.size()}, bytes));
    model_ = folder_.path() / "lm.safetensors";
    write_safetensors(model_, tensors);
    const std::vector<std::int32_t> text = {1, 2, 3, 4, 5, 6, 7, 200, 100, 50, 2, 3};
    text_ = folder_.path() / "text.safetensors";
    const std::vector<TensorView> text_tensors = {tensor_view("test.tokens", {text.size()}, text)};
    write_safetensors(text_, text_tensors);
  }

  ProgramRun run(const std::string& arguments) const {
    return run_tool("--head " + model_.string() + " " + arguments);
  }

  nlohmann::json report_of(const std::string& arguments) const {
    const std::filesystem::path out = folder_.path() / "out.json";
    const ProgramRun run = this->run(arguments + " --json " + out.string());
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return nlohmann::json::parse(testing::read_text(out));
  }

  /// The rows that --json writes under this name; each has these keys.
  nlohmann::json rows(const std::string& name, const std::string& arguments,
                      std::initializer_list<const char*> keys) const {
    const nlohmann::json report = report_of(arguments);
    EXPECT_EQ(report.at("head").at("vocab").get<std::size_t>(), kVocab);
    EXPECT_TRUE(report.at("machine").at("simd").is_string());
    EXPECT_TRUE(report.at("notes").is_array());
    for (const nlohmann::json& row : report.at(name)) {
      for (const char* const key : keys) EXPECT_TRUE(row.contains(key)) << key << " " << row;
    }
    return report.at(name);
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path model_;
  std::filesystem::path text_;
};

TEST_F(BenchLanguageModel, PerplexityHasARowForEachHead) {
  const ProgramRun run =
      this->run("--perplexity --text " + text_.string() + " --set fgd.ef_search=200" + kSmallL2s);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("11 tokens of"), std::string::npos) << run.out;
  for (const char* const head : {"exact", "svd", "adaptive", "fgd", "l2s"}) {
    EXPECT_NE(run.out.find(std::string("\n") + head), std::string::npos) << head;
  }
}

TEST_F(BenchLanguageModel, DecodesWithEveryHead) {
  const ProgramRun run = this->run("--decode --backends fused,certified");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* const decoder : {"greedy", "beam 5", "beam 12", "speculative K=4", "top-p 0.9"}) {
    EXPECT_NE(run.out.find(decoder), std::string::npos) << decoder;
  }
}

TEST_F(BenchLanguageModel, BatchingShowsEachWay) {
  const ProgramRun run = this->run("--batching --backends fused");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* const way : {"mini", "maxi", "top-up", "OpenSubtitles"}) {
    EXPECT_NE(run.out.find(way), std::string::npos) << way;
  }
}

TEST_F(BenchLanguageModel, BatchesAreOfTokensThatASmallVocabularyHas) {
  testing::ModelFile few = testing::ModelFile::language_model(5, kDim);
  few.add("contexts.train", {50, kDim});
  few.add("contexts.test", {20, kDim});
  model_ = few.write(folder_);
  const ProgramRun run = this->run("--batching --backends fused");
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST_F(BenchLanguageModel, WritesItsRowsAsJson) {
  const nlohmann::json decoding =
      rows("decoding", "--decode --backends l2s" + kSmallL2s,  // and Fused, to compare with
           {"decoder", "backend", "tokens_per_s", "speedup", "softmax_share"});
  EXPECT_EQ(decoding.size(), 5U * 2U + 2U * 3U);
  std::size_t drafted = 0;
  for (const nlohmann::json& row : decoding) {
    EXPECT_GT(row.at("tokens_per_s"), 0.0);
    EXPECT_GT(row.at("speedup"), 0.0);
    EXPECT_GT(row.at("softmax_share"), 0.0);
    EXPECT_LT(row.at("softmax_share"), 1.0);
    drafted += row.contains("acceptance") ? 1U : 0U;
  }
  EXPECT_EQ(drafted, 6U);
  const nlohmann::json scored =
      rows("perplexity", "--perplexity --backends l2s --text " + text_.string() + kSmallL2s,
           {"backend", "perplexity", "of_exact", "us_per_token", "speedup", "tokens", "outside"});
  ASSERT_EQ(scored.size(), 2U);
  EXPECT_EQ(scored[0].at("of_exact"), 1.0);
  EXPECT_EQ(scored[1].at("backend"), "l2s");
  const nlohmann::json batched =
      rows("batching", "--batching --backends fused",
           {"backend", "lengths", "batching", "sentences_per_s", "time_saved", "steps", "mean_batch"});
  ASSERT_EQ(batched.size(), 6U);
  for (const nlohmann::json& row : batched) {
    double sum = 0.0;
    for (const nlohmann::json& share : row.at("step_shares")) sum += share.get<double>();
    EXPECT_NEAR(sum, 1.0, 1e-9);
  }
}

TEST_F(BenchLanguageModel, PerplexityNamesTheHeadsThatItLeavesOut) {
  const std::string arguments = "--perplexity --text " + text_.string() + " --backends ";
  const nlohmann::json report = report_of(arguments + "l2s,fused,exact");
  EXPECT_EQ(report.at("perplexity").size(), 2U);
  EXPECT_EQ(report.at("left_out"), (nlohmann::json{"fused", "exact"}));
  EXPECT_EQ(report_of(arguments + "l2s").at("left_out"), nlohmann::json::array());
  const ProgramRun run = this->run(arguments + "l2s,fused,exact");
  EXPECT_NE(run.out.find("\nWithout candidates of their own: fused, exact\n"), std::string::npos) << run.out;
}

TEST_F(BenchLanguageModel, RefusesWhatDoesNotGoTogether) {
  EXPECT_EQ(run("--decode --sweep").exit_code, 2);
  EXPECT_EQ(run("--decode --perplexity").exit_code, 2);
  EXPECT_EQ(run("--text x").exit_code, 2);
  EXPECT_EQ(run("--perplexity --text " + model_.string()).exit_code, 1);
}

}  // namespace
}  // namespace topksoftmax
