// SPDX-License-Identifier: Apache-2.0
//
// topksoftmax ask as its user sees it: the program itself is run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/program.hpp"
#include "bench/tiny_head.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax {
namespace {

using ::testing::HasSubstr;
using testing::ProgramRun;
using testing::run_tool;
using testing::TinyHead;

class AskCommand : public ::testing::Test {
 protected:
  void SetUp() override { tiny_.write(head_); }

  ProgramRun ask(const std::string& arguments, const std::string& launcher = "") const {
    return run_tool("ask --head " + head_.string() + " " + arguments, "", launcher);
  }
  /// Of the head's own test contexts.
  ProgramRun ask_test(const std::string& arguments) const {
    return ask("--contexts " + head_.string() + " " + arguments);
  }
  /// A pipe with this text, to stand before the program.
  std::string piped(const std::string& text) const {
    return "cat " + folder_.write("piped", text).string() + " |";
  }

  std::string line_of(Eigen::Index context, const std::string& between) const {
    std::ostringstream line;
    line.precision(9);
    const auto h = tiny_.test.row(context);
    for (Eigen::Index i = 0; i < h.size(); ++i) line << (i == 0 ? "" : between) << h[i];
    return line.str() + "\n";
  }

  testing::TemporaryFolder folder_;
  TinyHead tiny_;
  std::filesystem::path head_ = folder_.path() / "tiny.safetensors";
};

TEST_F(AskCommand, AnswersAsTheLibraryDoes) {
  const ProgramRun run = ask_test("--k 3 --json -");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto exact = Exact::make(SoftmaxLayer::own(tiny_.weight, tiny_.bias));
  std::istringstream lines(run.out);
  Eigen::Index context = 0;
  for (std::string line; std::getline(lines, line); ++context) {
    const nlohmann::json told = nlohmann::json::parse(line);
    const TopK answer = exact->query(tiny_.test.row(context).transpose(), {.k = 3});
    EXPECT_EQ(told.at("ids").get<std::vector<TokenId>>(), answer.ids);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(told.at("log_probs")[i], answer.log_prob(i), 1e-5);
    EXPECT_EQ(told.at("certified"), true);
    EXPECT_EQ(told.at("confidence"), 1.0);
    EXPECT_EQ(told.at("normalizer"), "exact");
    EXPECT_FALSE(told.contains("log_z_interval"));
  }
  EXPECT_EQ(context, tiny_.test.rows());
}

TEST_F(AskCommand, GivesTheSameOneByOneInBatchesOnThreadsAndToAFile) {
  const std::string one_by_one = ask_test("--backend certified").out;
  EXPECT_EQ(std::count(one_by_one.begin(), one_by_one.end(), '\n'), tiny_.test.rows());
  EXPECT_EQ(ask_test("--backend certified --batch 7").out, one_by_one);
  EXPECT_EQ(ask_test("--backend certified --batch 16 --threads 2").out, one_by_one);
  EXPECT_EQ(ask_test("--threads 2").out, ask_test("").out);
  const std::filesystem::path out = folder_.path() / "answers.jsonl";
  EXPECT_EQ(ask_test("--json " + out.string()).out, "");
  EXPECT_EQ(testing::read_text(out), ask_test("--json -").out);
}

TEST_F(AskCommand, SaysWhereLogProbabilitiesAreEstimates) {
  EXPECT_EQ(ask_test("").err, "");
  for (const auto& [backend, part] :
       std::map<std::string, std::string>{{"certified", "is estimated within a proven interval"},
                                          {"l2s", "counts what contexts have taught of the other tokens"},
                                          {"svd", "counts most tokens by an approximate logit"}}) {
    const ProgramRun run = ask_test("--backend " + backend);
    EXPECT_THAT(run.err, HasSubstr("log-probabilities are estimates: log Z " + part)) << backend;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_EQ(ask_test("--json - --backend " + backend).err, "");
  }
  std::istringstream lines(ask_test("--backend certified --json -").out);
  std::size_t intervals = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json told = nlohmann::json::parse(line);
    if (told.at("normalizer") != "interval") continue;
    ++intervals;
    EXPECT_LE(told.at("log_z_interval").at(0), told.at("log_z"));
    EXPECT_GE(told.at("log_z_interval").at(1), told.at("log_z"));
  }
  EXPECT_GT(intervals, 0U);
}

TEST_F(AskCommand, RefusesAnEffortThatTheBackendDoesNotHave) {
  const std::string index = (folder_.path() / "certified.index").string();
  ASSERT_EQ(run_tool("build --head " + head_.string() + " --backend certified --out " + index).exit_code, 0);
  for (const std::string& asked : {std::string("--backend certified"), "--index " + index}) {
    const ProgramRun run = ask_test("--effort 9 " + asked);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr("--effort: certified has no effort"));
  }
  EXPECT_THAT(ask_test("--effort 9").err, HasSubstr("--effort: fused has no effort"));
  EXPECT_EQ(ask_test("--effort 0").exit_code, 0);
  for (const std::string backend : {"l2s", "svd", "certify:l2s"}) {
    EXPECT_EQ(ask_test("--effort 9 --backend " + backend).exit_code, 0) << backend;
  }
}

std::string first_two_lines(const std::string& text) {
  return text.substr(0, text.find('\n', text.find('\n') + 1) + 1);
}

TEST_F(AskCommand, TakesTextAsItArrives) {
  const std::string expected = ask_test("--k 2").out;
  const std::string first_two = first_two_lines(expected);
  for (const std::string between : {" ", ",", "\t", ", "}) {
    const std::string text = "# two contexts\n\n" + line_of(0, between) + "[" + line_of(1, between);
    EXPECT_EQ(ask("--k 2", piped(text)).out, first_two) << between;
    EXPECT_EQ(ask("--k 2 --contexts " + folder_.write("text", text).string()).out, first_two);
  }
  EXPECT_EQ(ask("", piped("")).out, "");
  // What was answered before a bad line has been printed.
  const ProgramRun run = ask("--k 2", piped(line_of(0, " ") + "1 2 three\n"));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.out, expected.substr(0, expected.find('\n') + 1));
  EXPECT_THAT(run.err, HasSubstr("standard input, line 2: \"three\" is not a number within float64's range"));
  EXPECT_THAT(ask("", piped("1 2 3\n")).err, HasSubstr("line 1: has 3 numbers; the layer's dimension is 16"));
  std::string rows;
  for (std::size_t i = 0; i < TinyHead::kVocab; ++i) rows += "1 ";
  EXPECT_THAT(ask("", piped(rows + "\n")).err,
              HasSubstr("line 1: has 300 numbers; the layer's dimension is 16, and W has 300 rows: is it "
                        "transposed?"));
  std::string with_nan = line_of(0, " ");
  with_nan.replace(0, with_nan.find(' '), "nan");
  EXPECT_THAT(ask("", piped(with_nan)).err, HasSubstr("topksoftmax: context 1: "));
  // Other programs write what float32 has no room for.
  std::string tiny = line_of(0, " ");
  tiny.replace(0, tiny.find(' '), "1e-46");
  EXPECT_EQ(ask("", piped(tiny)).exit_code, 0);
  tiny.replace(0, tiny.find(' '), "1e50");
  EXPECT_THAT(ask("", piped(tiny)).err, HasSubstr("context 1: query: h[0] is inf"));
}

TEST_F(AskCommand, SaysThatStandardInputCannotBeRead) {
  const ProgramRun run = ask("<" + folder_.path().string());
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err, "topksoftmax: standard input: cannot be read\n");
}

TEST_F(AskCommand, TakesTextFromANamedPipe) {
  const std::string first_two = first_two_lines(ask_test("--k 2").out);
  const std::filesystem::path pipe = folder_.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::future<void> written = std::async(std::launch::async, [&] {
    std::ofstream out(pipe);
    for (const Eigen::Index context : {0, 1}) {
      out << line_of(context, " ") << std::flush;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  const ProgramRun run = ask("--k 2 --contexts " + pipe.string());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, first_two);
}

TEST_F(AskCommand, RefusesFilesThatHoldNoContexts) {
  const auto expect_error = [&](const std::filesystem::path& contexts, const std::string& part) {
    const ProgramRun run = ask("--contexts " + contexts.string());
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(contexts.string() + part));
  };
  expect_error(folder_.path(), ": is a folder; contexts are read from .npy, .npz, .safetensors or text");
  expect_error(folder_.write("empty", ""), ": holds no contexts");
  expect_error(folder_.write("comment", "# nothing\n\n"), ": holds no contexts");
  const std::filesystem::path none = folder_.path() / "none.safetensors";
  write_safetensors(none,
                    std::vector{tensor_view("contexts", {0, TinyHead::kDim}, std::span<const float>())});
  expect_error(none, ": holds no contexts");
  EXPECT_EQ(ask("", piped("")).exit_code, 0);
}

TEST_F(AskCommand, RefusesNumbersThatAreNone) {
  const ProgramRun run = ask_test("--effort -3");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("--effort: \"-3\" must be a whole number from 0"));
}

TEST_F(AskCommand, WritesOverNothingThatItReads) {
  const std::string contexts = folder_.write("contexts.txt", line_of(0, " ")).string();
  const std::string learn = folder_.write("learn.npy", "contexts").string();
  const std::string index = folder_.write("l2s.index", "an index").string();
  const auto expect_refused = [&](const std::string& arguments, const std::string& option,
                                  const std::string& file) {
    const std::string before = testing::read_text(file);
    const ProgramRun run = ask(arguments + " --json " + file);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr("--json is the file of " + option + ", " + file + "; name another"));
    EXPECT_EQ(testing::read_text(file), before);
  };
  expect_refused("--contexts " + contexts, "--contexts", contexts);
  expect_refused("<" + contexts, "--contexts", contexts);
  expect_refused("--learn " + learn, "--learn", learn);
  expect_refused("--index " + index, "--index", index);
  expect_refused("", "--head", head_.string());
}

TEST_F(AskCommand, AsksAnIndex) {
  const std::string index = (folder_.path() / "l2s.index").string();
  ASSERT_EQ(run_tool("build --head " + head_.string() + " --backend l2s --out " + index).exit_code, 0);
  const ProgramRun run = ask_test("--index " + index + " --json -");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, ask_test("--backend l2s --json -").out);
  EXPECT_EQ(ask_test("--index " + index + " --backend l2s").exit_code, 2);
  EXPECT_EQ(ask_test("--index " + head_.string()).exit_code, 1);
  EXPECT_EQ(ask_test("--threads 3 --batch 2").exit_code, 2);
}

}  // namespace
}  // namespace topksoftmax
