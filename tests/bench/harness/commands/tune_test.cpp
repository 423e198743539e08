// SPDX-License-Identifier: Apache-2.0
//
// topksoftmax tune as its user sees it: the program itself is run.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "bench/program.hpp"
#include "bench/tiny_head.hpp"
#include "support/temporary_folder.hpp"

namespace topksoftmax {
namespace {

using testing::ProgramRun;
using testing::read_text;
using testing::run_tool;
using testing::TinyHead;

class TuneProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    head_ = folder_.path() / "tiny.safetensors";
    TinyHead().write(head_);
  }

  ProgramRun tune(const std::string& arguments) const {
    return run_tool("tune --head " + head_.string() + " " + arguments);
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path head_;
};

std::ptrdiff_t count_of(const std::string& text, const std::string& part) {
  std::ptrdiff_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(TuneProgram, PrintsWhatItTriedAndMarksTheOneToTake) {
  const ProgramRun run = tune("--target p3=0.8");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(count_of(run.out, "\n=> "), 1) << run.out;
  for (const char* part :
       {"tiny: V = 300, d = 16; P@3 ≥ 0.8000 wanted", "learned from 320 contexts, judged on 80", "   backend",
        "fused ", "certified ", "quantized ", "shortlist ", "svd ", "l2s-kmeans ",
        "\nauto head = ", ";  // ask it with {.k = 3", "P@3 on the 90 test contexts: "}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
}

TEST_F(TuneProgram, WritesJson) {
  const std::filesystem::path out = folder_.path() / "out.json";
  const ProgramRun run = tune("--target P5=1 --max-index-mb 0 --max-seconds 0 --json " + out.string());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json report = nlohmann::json::parse(read_text(out));
  EXPECT_EQ(report.at("head").at("name"), "tiny");
  EXPECT_EQ(report.at("target"), (nlohmann::json{{"k", 5}, {"precision", 1.0}}));
  EXPECT_EQ(report.at("fit"), 320);
  EXPECT_EQ(report.at("validation"), 80);
  EXPECT_EQ(report.at("within_budget"), true);
  EXPECT_EQ(report.at("test"),
            (nlohmann::json{{"contexts", 90}, {"precision", 1.0}, {"meets_target", true}}));
  const nlohmann::json& rows = report.at("rows");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows.at(report.at("chosen").get<std::size_t>()).at("backend"), "fused");
  std::set<std::string> names;
  for (const nlohmann::json& row : rows) {
    names.insert(row.at("backend"));
    EXPECT_GT(row.at("us_per_query").get<double>(), 0.0);
    EXPECT_EQ(row.at("reason").get<std::string>().empty(), row.at("backend") == "fused");
    for (const char* key : {"settings", "code", "effort", "exact", "build_seconds", "index_bytes",
                            "precision", "lower_bound", "speedup", "spread", "bytes_per_query"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"certified", "fused", "quantized"}));
  double spread = 0.0;
  for (const nlohmann::json& row : rows) spread = std::max(spread, row.at("spread").get<double>());
  EXPECT_EQ(report.at("notes").size(), spread > 0.1 ? 1U : 0U) << spread;
}

TEST_F(TuneProgram, SaysWhatItCouldNotDo) {
  const ProgramRun run = tune("--target p3=0.8 --max-seconds 0 --max-us 0.000001");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("the time was over before all had been tried"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("none meets the target within 1e-06 µs"), std::string::npos) << run.out;
  EXPECT_EQ(count_of(run.out, "over the budget\n"), 1) << run.out;
  const std::size_t chosen = run.out.find("\n=> ");
  const std::string row = run.out.substr(chosen + 1, run.out.find('\n', chosen + 1) - chosen);
  EXPECT_TRUE(row.ends_with("over the budget\n")) << row;
}

TEST_F(TuneProgram, SaysHowManyContextsAreWanting) {
  const ProgramRun run = tune("--target p5=0.99 --max-seconds 0");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("80 judged contexts can prove P@5 ≥ 0.8"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find(" at most, so approximate backends were not searched; 0.99 needs about "),
            std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find(" to learn from\n"), std::string::npos) << run.out;
  const std::string never = tune("--target p5=0.99999 --max-seconds 0").out;
  EXPECT_NE(never.find("and no more than 4000 are judged\n"), std::string::npos) << never;
  for (const std::string target : {"p5=0.8", "p5=1"}) {
    EXPECT_EQ(tune("--max-seconds 0 --target " + target).out.find("judged contexts can"), std::string::npos);
  }
}

TEST_F(TuneProgram, CountsTheContextsThatAFileKeepsApart) {
  const std::filesystem::path one = folder_.path() / "one.safetensors";
  const RowMajorMatrix contexts = TinyHead().train;
  write_safetensors(
      one, std::vector{tensor_view("h", {TinyHead::kTrain, TinyHead::kDim}, testing::values(contexts))});
  const std::string out = tune("--target p5=0.99 --max-seconds 0 --contexts " + one.string()).out;
  const std::string before = "0.99 needs about ";
  const std::size_t begin = out.find(before);
  ASSERT_NE(begin, std::string::npos) << out;
  const std::size_t judged = std::stoul(out.substr(begin + before.size()));
  const std::string told = ", of " + std::to_string(5 * judged) + " to learn from (" +
                           std::to_string((25 * judged + 3) / 4) +
                           " in a file whose last fifth is measured on)\n";
  EXPECT_NE(out.find(told), std::string::npos) << told << out;
}

TEST_F(TuneProgram, RefusesWhatItCannotUse) {
  const auto expect_error = [](const ProgramRun& run, int exit_code, const std::string& part) {
    EXPECT_EQ(run.exit_code, exit_code);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(count_of(run.err, "\n"), 1) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
  };
  expect_error(run_tool("tune"), 2, "--head");
  expect_error(run_tool("tune --head /nonexistent.safetensors"), 1, "/nonexistent.safetensors");
  for (const char* target : {"p5", "5=0.99", "p=0.99", "p5=good", "p5=0.99x", "r5=0.99", "p-5=0.9"})
    expect_error(tune(std::string("--target ") + target), 2, "it must be of the form p5=0.99");
  for (const char* target : {"p5=1.5", "p5=0", "p5=-1", "p5=nan"}) {
    expect_error(tune(std::string("--target ") + target), 2,
                 std::string("--target ") + target + ": the precision must be above 0 and at most 1");
  }
  expect_error(tune("--target p0=0.5"), 2, "--target p0=0.5: k must be at least 1");
  expect_error(tune("--max-us 0"), 2, "--max-us");
  expect_error(tune("--max-index-mb -1"), 2, "--max-index-mb");
  expect_error(tune("--max-seconds -1"), 2, "--max-seconds");
  expect_error(tune("--json /nonexistent/out.json"), 1, "/nonexistent/out.json");
  expect_error(tune("--json " + head_.string()), 2, "--json is the file of --head");
  expect_error(tune("--contexts " + head_.string() + " --out " + head_.string()), 2, "--out is the file of");
  expect_error(tune("--max-index-mb nan"), 2, "--max-index-mb: \"nan\" must be a number from 0 to");
  expect_error(tune("--max-us nan"), 2, "--max-us");
  expect_error(tune("--seed -1"), 2, "--seed: \"-1\" must be a whole number from 0");
  for (const std::string confidence : {"nan", "2", "0", "1"}) {
    expect_error(tune("--confidence " + confidence), 2,
                 "--confidence: \"" + confidence + "\" must be a number above 0 and at most 0.999999999");
  }
  expect_error(tune("--backends fused"), 2, "--backends");

  const std::filesystem::path bare = folder_.path() / "bare.safetensors";
  TinyHead none;
  none.train.resize(0, TinyHead::kDim);
  none.write(bare);
  expect_error(run_tool("tune --head " + bare.string()), 1,
               "there are no contexts to learn from; --contexts FILE gives some");
}

TEST_F(TuneProgram, RefusesTestContextsThatAreNotFiniteBeforeItWorks) {
  const std::filesystem::path bad = folder_.path() / "bad.safetensors";
  TinyHead head;
  head.test(7, 3) = std::numeric_limits<float>::quiet_NaN();
  head.train.resize(0, TinyHead::kDim);  // too few to learn from are refused as soon as the work begins
  head.write(bad);
  const ProgramRun run = run_tool("tune --head " + bad.string());
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("bad.safetensors: contexts.test[7, 3] is NaN; it must be finite"), std::string::npos)
      << run.err;
  EXPECT_EQ(run_tool("--head " + bad.string()).err, run.err);
}

TEST_F(TuneProgram, IsListedInTheHelp) {
  EXPECT_NE(run_tool("--help").out.find("tune"), std::string::npos);
  EXPECT_NE(run_tool("tune --help").out.find("--target"), std::string::npos);
}

}  // namespace
}  // namespace topksoftmax
