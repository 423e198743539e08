// SPDX-License-Identifier: Apache-2.0
//
// topksoftmax as its user sees it: the program itself is run.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "bench/program.hpp"
#include "bench/tiny_head.hpp"
#include "harness/experiments/ablation.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax {
namespace {

using testing::ProgramRun;
using testing::read_text;
using testing::run_tool;
using testing::TinyHead;
using testing::values;

constexpr std::size_t kVocab = TinyHead::kVocab;
constexpr std::size_t kDim = TinyHead::kDim;
constexpr std::size_t kTrain = TinyHead::kTrain;

class BenchProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    head_ = folder_.path() / "tiny.safetensors";
    TinyHead().write(head_);
  }

  /// Runs it on the tiny head, quickly.
  ProgramRun measure(const std::string& arguments, const std::string& launcher = "") const {
    return run_tool("--head " + head_.string() + " --rounds 1 --timed 20 " + arguments, "", launcher);
  }

  nlohmann::json measured_json(const std::string& arguments) const {
    const std::filesystem::path out = folder_.path() / "out.json";
    const ProgramRun run = measure(arguments + " --json " + out.string());
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return nlohmann::json::parse(read_text(out));
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path head_;
};

std::vector<std::string> keys(const nlohmann::json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> backends_of(const nlohmann::json& report) {
  std::vector<std::string> names;
  for (const nlohmann::json& result : report.at("results")) names.push_back(result.at("backend"));
  return names;
}

/// An error is one line on stderr, nothing on stdout, and an exit code that is not 0.
void expect_error(const ProgramRun& run, int exit_code, const std::string& part) {
  EXPECT_EQ(run.exit_code, exit_code);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_TRUE(run.err.starts_with("topksoftmax: ")) << run.err;
  EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
}

TEST(BenchProgramItself, TellsItsVersion) {
  const ProgramRun run = run_tool("--version");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.out, "topksoftmax " TOPKSOFTMAX_VERSION "\n");
  EXPECT_EQ(run.err, "");
}

TEST(BenchProgramItself, NamesEveryOptionInItsHelp) {
  const std::string help = run_tool("measure --help").out;
  for (const char* option :
       {"--head",     "--backends",    "--k",       "--queries",    "--timed",       "--rounds",
        "--set",      "--as",          "--threads", "--batch",      "--json",        "--html",
        "--sweep",    "--ablation",    "--decode",  "--perplexity", "--batching",    "--text",
        "--sampling", "--temperature", "--top-p",   "--min-p",      "--log-z-error", "--cursor",
        "--ranks",    "--contexts",    "--tensor",  "--bias",       "--typical-p",   "--top-n-sigma",
        "--top-k",    "--allowed"}) {
    EXPECT_NE(help.find(std::string("  ") + option + " "), std::string::npos) << option << "\n" << help;
  }
}

TEST(BenchProgramItself, SaysThatItsOutputIsLost) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  expect_error(run_tool("--list", "/dev/full"), 1, "standard output cannot be written");
}

TEST_F(BenchProgram, DrawsTokens) {
  for (const std::string options :
       {"", " --temperature 0.8 --top-p 0.9", " --min-p 0.1", " --top-n-sigma 1", " --top-k 40"}) {
    const nlohmann::json report = measured_json("--sampling --backends fused,certified,l2s" + options);
    EXPECT_EQ(keys(report), (std::vector<std::string>{"batch", "contexts", "head", "machine", "notes",
                                                      "reference", "sampling", "threads"}));
    EXPECT_EQ(report.at("contexts"), 20);
    const nlohmann::json& fused = report.at("sampling")[0];
    EXPECT_EQ(report.at("reference"),
              (nlohmann::json{{"backend", "fused"}, {"us_per_token", fused.at("us_per_token")}}));
    ASSERT_EQ(report.at("sampling").size(), 3U);
    for (const nlohmann::json& row : report.at("sampling")) {
      EXPECT_EQ(row.at("different_share"), 0.0) << row;
      EXPECT_GT(row.at("us_per_token"), 0.0);
      EXPECT_GT(row.at("speedup"), 0.0);
      EXPECT_GE(row.at("trials_mean"), 0.0);
      const bool proven = row.at("backend") == "certified";
      EXPECT_TRUE(proven ? row.at("scans_per_1000") < 1000.0 : row.at("scans_per_1000") == 1000.0) << row;
    }
    EXPECT_EQ(fused.at("speedup"), 1.0);
  }
  const nlohmann::json sampled =
      measured_json("--sampling --backends fused,certified --top-p 0.9 --log-z-error 0.01");
  EXPECT_EQ(sampled.at("sampling")[1].at("log_z_error"), 0.01);
  const nlohmann::json typical =
      measured_json("--sampling --backends fused --typical-p 0.5 --top-n-sigma 1.5");
  EXPECT_EQ(typical.at("sampling")[0].at("typical_p"), 0.5);
  EXPECT_EQ(typical.at("sampling")[0].at("top_n_sigma"), 1.5);
  const nlohmann::json shared = measured_json("--sampling --backends fused,certified --threads 2");
  EXPECT_EQ(shared.at("threads"), 2);
  for (const nlohmann::json& row : shared.at("sampling")) EXPECT_EQ(row.at("different_share"), 0.0) << row;
  const nlohmann::json batches =
      measured_json("--sampling --backends fused,certified --batch 8 --threads 2 --top-p 0.9");
  EXPECT_EQ(batches.at("batch"), 8);
  for (const nlohmann::json& row : batches.at("sampling")) EXPECT_EQ(row.at("different_share"), 0.0) << row;
  EXPECT_EQ(batches.at("sampling")[0].at("scans_per_1000"), 1000.0);
  for (const std::string batch : {"", " --batch 4"}) {
    const nlohmann::json masked = measured_json("--sampling --backends fused,certified --allowed 5" + batch);
    for (const nlohmann::json& row : masked.at("sampling")) {
      EXPECT_EQ(row.at("allowed"), 5);
      EXPECT_EQ(row.at("different_share"), 0.0) << row;
      EXPECT_EQ(row.at("scans_per_1000"), 0.0) << row;
    }
  }
  expect_error(measure("--sampling --allowed 1000000"), 1, "--allowed 1000000: there are no more than");
  const ProgramRun run = measure("--sampling");
  EXPECT_NE(run.out.find("certified"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("1.0 is fused"), std::string::npos) << run.out;
  expect_error(measure("--sampling --temperature -1"), 2, "temperature");
  expect_error(measure("--sampling --temperature 0"), 2, "greedy");
  expect_error(measure("--sampling --sweep"), 2, "--sampling cannot be combined with --sweep");
  expect_error(measure("--top-p 0.9"), 2, "--top-p needs --sampling");
}

TEST_F(BenchProgram, TakesTokensOnDemand) {
  const nlohmann::json report = measured_json("--cursor 1,20 --backends fused,certified");
  EXPECT_EQ(keys(report), (std::vector<std::string>{"contexts", "cursor", "head", "machine", "notes"}));
  EXPECT_EQ(report.at("contexts"), 20);
  ASSERT_EQ(report.at("cursor").size(), 4U);
  for (const nlohmann::json& row : report.at("cursor")) {
    EXPECT_EQ(row.at("different_share"), 0.0) << row;
    EXPECT_GT(row.at("us_query"), 0.0);
    EXPECT_GT(row.at("us_cursor"), 0.0);
  }
  EXPECT_EQ(report.at("cursor")[3].at("backend"), "certified");
  EXPECT_EQ(report.at("cursor")[3].at("tokens"), 20);
  const ProgramRun run = measure("--cursor 3");
  EXPECT_NE(run.out.find("cursor/query"), std::string::npos) << run.out;
  expect_error(measure("--cursor 0"), 2, "--cursor");
  expect_error(measure("--cursor 1000000"), 1, "there are no 1000000 tokens among");
  expect_error(measure("--cursor 3 --sampling"), 2, "--cursor cannot be combined with --sampling");
}

TEST_F(BenchProgram, MeasuresSlicesOnRanks) {
  expect_error(measure("--ranks --sweep"), 2, "--ranks cannot be combined with --sweep");
#if defined(TOPKSOFTMAX_ON_TWO_RANKS)
  for (const std::string options : {"", " --batch 4"}) {
    const std::filesystem::path out = folder_.path() / "ranks.json";
    const ProgramRun run = measure("--ranks --json " + out.string() + options, TOPKSOFTMAX_ON_TWO_RANKS);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_NE(run.out.find("2 ranks"), std::string::npos) << run.out;
    EXPECT_EQ(run.out.find("other tokens"), std::string::npos) << run.out;
    const nlohmann::json report = nlohmann::json::parse(read_text(out));
    EXPECT_EQ(keys(report), (std::vector<std::string>{"contexts", "head", "machine", "notes", "ranks"}));
    EXPECT_EQ(report.at("contexts"), 20);
    ASSERT_EQ(report.at("ranks").size(), 4U);
    EXPECT_EQ(report.at("ranks")[1].at("backend"), "certified");
    const nlohmann::json& sharing = report.at("ranks")[2];
    EXPECT_EQ(sharing.at("backend"), "certified, ids alone");
    for (const nlohmann::json& row : report.at("ranks")) {
      EXPECT_EQ(row.at("ranks"), 2);
      EXPECT_EQ(row.at("different_share"), 0.0);
      for (const char* const time : {"us_on_one", "us", "us_in_screens", "us_in_collectives", "speedup"}) {
        EXPECT_GT(row.at(time), 0.0) << time;
      }
      EXPECT_EQ(row.at("collectives"), !options.empty() ? 0.25 : row == sharing ? 2.0 : 1.0) << row;
      EXPECT_LE(row.at("us_in_screens").get<double>() + row.at("us_in_collectives").get<double>(),
                1.01 * row.at("us").get<double>() + 1.0);
    }
  }
  const ProgramRun missing =
      run_tool("--ranks --head " + head_.string() + ".not", "", TOPKSOFTMAX_ON_TWO_RANKS);
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_NE(missing.err.find("No such file"), std::string::npos) << missing.err;
#else
  expect_error(measure("--ranks"), 2, "--ranks: this program was built without MPI");
#endif
}

TEST_F(BenchProgram, WritesTheReport) {
  const nlohmann::json report = measured_json("--backends exact,fused,peer:eigen --k 1,5");
  EXPECT_EQ(keys(report), (std::vector<std::string>{"batch", "contexts", "head", "machine", "notes",
                                                    "reference", "results", "rounds", "threads"}));
  EXPECT_EQ(report.at("contexts"), TinyHead::kTest);
  EXPECT_EQ(report.at("rounds"), 1);
  EXPECT_EQ(report.at("notes"), nlohmann::json::array());  // one round cannot be restless

  const nlohmann::json& machine = report.at("machine");
  EXPECT_EQ(keys(machine), (std::vector<std::string>{"cores", "cpu", "read_gb_s", "simd"}));
  EXPECT_TRUE(machine.at("cpu").is_string());
  EXPECT_GE(machine.at("cores").get<int>(), 1);
  EXPECT_FALSE(machine.at("simd").get<std::string>().empty());
  EXPECT_GT(machine.at("read_gb_s").get<double>(), 0.0);

  const nlohmann::json head = {
      {"file", head_.string()}, {"name", "tiny"},  {"vocab", kVocab},        {"dim", kDim},
      {"type", "float32"},      {"train", kTrain}, {"test", TinyHead::kTest}};
  nlohmann::json told = report.at("head");
  EXPECT_EQ(keys(told.at("concentration")),
            (std::vector<std::string>{"directions", "energy", "energy_centred"}));
  told.erase("concentration");
  EXPECT_EQ(told, head);

  EXPECT_EQ(backends_of(report), (std::vector<std::string>{"exact", "fused", "peer:eigen"}));
  const nlohmann::json& reference = report.at("reference");
  double fastest = 0.0;
  for (const nlohmann::json& result : report.at("results")) {
    EXPECT_EQ(keys(result),
              (std::vector<std::string>{"backend", "build_peak_bytes", "build_seconds", "bytes_per_query",
                                        "candidates_mean", "certified_rate", "index_bytes", "limit_gb_s",
                                        "log_prob_error", "p_at", "params", "read_gb_s", "screened_mean",
                                        "slower_than_fused", "speedup", "spread", "us_per_query"}));
    if (result.at("speedup") == 1.0) {
      EXPECT_EQ(reference, (nlohmann::json{{"backend", result.at("backend")},
                                           {"us_per_query", result.at("us_per_query")},
                                           {"spread", result.at("spread")}}));
    }
    EXPECT_EQ(result.at("limit_gb_s"), machine.at("read_gb_s"));
    EXPECT_NEAR(result.at("read_gb_s").get<double>() * result.at("us_per_query").get<double>(),
                1e-3 * result.at("bytes_per_query").get<double>(), 1e-6);
    EXPECT_EQ(result.at("spread"), 0.0);
    EXPECT_TRUE(result.at("params").is_object());
    EXPECT_GT(result.at("us_per_query").get<double>(), 0.0);
    EXPECT_EQ(result.at("p_at"), (nlohmann::json{{"1", 1.0}, {"5", 1.0}}));
    EXPECT_EQ(result.at("bytes_per_query").get<double>(), static_cast<double>(4 * kVocab * (kDim + 1)));
    EXPECT_EQ(result.at("index_bytes").get<int>(), 0);
    EXPECT_EQ(result.at("candidates_mean").get<double>(), static_cast<double>(kVocab));
    const nlohmann::json& error = result.at("log_prob_error");
    EXPECT_EQ(keys(error), (std::vector<std::string>{"max", "median", "p99"}));
    EXPECT_LT(error.at("max").get<double>(), 1e-4);
    EXPECT_LE(error.at("median").get<double>(), error.at("p99").get<double>());
    EXPECT_LE(error.at("p99").get<double>(), error.at("max").get<double>());
    fastest = std::max(fastest, result.at("speedup").get<double>());
  }
  EXPECT_DOUBLE_EQ(fastest, 1.0);
}

TEST_F(BenchProgram, MeasuresEveryBackendThatItLists) {
  std::set<std::string> listed;
  std::istringstream lines(run_tool("list --names").out);
  for (std::string line; std::getline(lines, line);) listed.insert(line);
  // One of them cannot be built, which a note says in its place.
  const nlohmann::json report = measured_json("--set svd.preview_width=1000");
  const std::vector<std::string> measured = backends_of(report);
  std::set<std::string> told(measured.begin(), measured.end());
  EXPECT_EQ(told.size(), measured.size());
  std::set<std::string> left_out;
  const std::string without = "without ";
  for (const std::string note : report.at("notes")) {
    if (note.starts_with(without))
      left_out.insert(note.substr(without.size(), note.find(": ") - without.size()));
  }
  EXPECT_EQ(left_out, std::set<std::string>{"svd"});
  told.merge(left_out);
  EXPECT_EQ(told, listed);
}

TEST_F(BenchProgram, ReportsNoWorkThatItDoesNotKnow) {
  const nlohmann::json report = measured_json("--backends fused,peer:hnswlib");
  const nlohmann::json& fused = report.at("results")[0];
  const nlohmann::json& graph = report.at("results")[1];
  for (const char* const key :
       {"bytes_per_query", "read_gb_s", "limit_gb_s", "screened_mean", "candidates_mean"}) {
    EXPECT_TRUE(fused.at(key).is_number()) << key;
    EXPECT_TRUE(graph.at(key).is_null()) << key;
  }
  const std::filesystem::path page = folder_.path() / "report.html";
  EXPECT_EQ(measure("--backends peer:hnswlib --html " + page.string()).exit_code, 0);
  EXPECT_EQ(read_text(page).find("nan"), std::string::npos);
  const ProgramRun run = measure("--backends peer:hnswlib --k 1");
  std::istringstream row(run.out.substr(run.out.find("\npeer:hnswlib") + 1));
  std::vector<std::string> cells(9);
  for (std::string& cell : cells) row >> cell;
  EXPECT_EQ(std::vector(cells.begin() + 4, cells.end()), std::vector<std::string>(5, "-")) << run.out;
}

TEST_F(BenchProgram, PrintsATableAndNoProgressIntoAPipe) {
  const ProgramRun run = measure("--backends fused,certified --k 5,1,5 --set certified.width=8");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.out.find('\033'), std::string::npos);
  for (const char* part : {"tiny: V = 300, d = 16", "speedup is against fused", "P@1", "P@5", "\nfused",
                           "\ncertified", "width=8"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
}

TEST_F(BenchProgram, ComparesWithFusedWhereNoExactBackendIsChosen) {
  const nlohmann::json report = measured_json("--backends certified");
  EXPECT_EQ(backends_of(report), std::vector<std::string>{"certified"});
  EXPECT_GT(report.at("results")[0].at("speedup").get<double>(), 0.0);
  EXPECT_EQ(report.at("results")[0].at("certified_rate").get<double>(), 1.0);
}

TEST_F(BenchProgram, ReadsWeightsInTheTypeOfTheFile) {
  const TinyHead head;
  std::vector<Eigen::half> halves(kVocab * kDim);
  std::transform(head.weight.data(), head.weight.data() + head.weight.size(), halves.begin(),
                 [](float x) { return Eigen::half(x); });
  const std::vector<TensorView> tensors = {tensor_view("weight", {kVocab, kDim}, halves),
                                           tensor_view("contexts.train", {kTrain, kDim}, values(head.train)),
                                           tensor_view("contexts.test", {kTrain, kDim}, values(head.train))};
  write_safetensors(head_, tensors, {{"name", "half"}});
  const nlohmann::json report = measured_json("--queries 30");
  EXPECT_EQ(report.at("head").at("type"), "float16");
  EXPECT_GE(report.at("results").size(), 4U);
  for (const nlohmann::json& result : report.at("results")) {
    const std::string backend = result.at("backend");
    if (backend == "exact" || backend == "fused") {
      EXPECT_EQ(result.at("bytes_per_query").get<double>(), static_cast<double>(2 * kVocab * kDim));
    }
    if (backend == "certified") {
      EXPECT_EQ(result.at("p_at"), (nlohmann::json{{"1", 1.0}, {"5", 1.0}}));
    }
  }
}

TEST_F(BenchProgram, TimesTheReferenceOnceAndComparesItWithItself) {
  for (int run = 0; run < 8; ++run) {
    const nlohmann::json report = measured_json("--backends fused --queries 20");
    EXPECT_EQ(report.at("results")[0].at("speedup").get<double>(), 1.0);
  }
}

TEST_F(BenchProgram, ReportsTheParametersThatWereSet) {
  const nlohmann::json report =
      measured_json("--backends certified --set certified.width=8 certified.prefix=4");
  EXPECT_EQ(report.at("results")[0].at("params").at("width").get<int>(), 8);
  EXPECT_EQ(report.at("results")[0].at("params").at("prefix").get<int>(), 4);
}

TEST_F(BenchProgram, MeasuresBatchesOnSeveralThreads) {
  const nlohmann::json report =
      measured_json("--backends exact,fused,peer:eigen --batch 8 --threads 2 --queries 50");
  for (const nlohmann::json& result : report.at("results")) {
    EXPECT_EQ(result.at("p_at"), (nlohmann::json{{"1", 1.0}, {"5", 1.0}}));
  }
}

TEST_F(BenchProgram, SharesEachQueryAmongThreads) {
  const nlohmann::json report = measured_json("--backends exact,certified --threads 2 --queries 50");
  EXPECT_EQ(report.at("threads").get<int>(), 2);
  EXPECT_EQ(report.at("batch").get<int>(), 1);
  for (const nlohmann::json& result : report.at("results")) {
    EXPECT_EQ(result.at("p_at"), (nlohmann::json{{"1", 1.0}, {"5", 1.0}}));
  }
}

TEST_F(BenchProgram, SaysWhoHadOneThreadWhereOthersHadMore) {
  const std::string remark = "on one thread, as other libraries share no query: peer:eigen, peer:hnswlib";
  const std::string arguments = "--backends fused,peer:eigen,peer:hnswlib --queries 50";
  const std::filesystem::path page = folder_.path() / "report.html";
  const nlohmann::json shared = measured_json(arguments + " --threads 2 --html " + page.string());
  EXPECT_EQ(shared.at("notes"), nlohmann::json::array({remark}));
  EXPECT_NE(read_text(page).find(remark), std::string::npos);
  EXPECT_NE(measure(arguments + " --threads 2").out.find("\n" + remark + "\n"), std::string::npos);
  for (const std::string options : {"", " --batch 2", " --batch 2 --threads 2"}) {
    EXPECT_EQ(measured_json(arguments + options).at("notes"), nlohmann::json::array()) << options;
  }
}

TEST_F(BenchProgram, TakesAKBeyondTheVocabulary) {
  const nlohmann::json report = measured_json("--backends exact --k 1000");
  EXPECT_EQ(report.at("results")[0].at("p_at"), (nlohmann::json{{"1000", 1.0}}));
}

TEST_F(BenchProgram, SweepsAndKeepsWhatNothingBeats) {
  const ProgramRun run = measure("--sweep --backends fused,fgd,certified");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* part :
       {"best at P@1 ≥ 0.99", "best at P@5 ≥ 0.98", "best at both ≥ 0.99", "\nfused", "\ncertified",
        "ef_search=", "timed beside the reference anew, so speedups are not the ratios of the µs"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
}

TEST_F(BenchProgram, SweepsEveryBackendThatItLists) {
  const nlohmann::json report =
      measured_json("--sweep --queries 20 --set l2s.rounds=1 l2s.clusters=4 l2s-kmeans.clusters=4");
  const ProgramRun list = run_tool("--list");
  std::istringstream lines(list.out);
  const std::vector<std::string> swept = backends_of(report);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(' ') || line.ends_with(":NAME")) continue;
    EXPECT_NE(std::find(swept.begin(), swept.end(), line), swept.end()) << line;
  }
}

TEST_F(BenchProgram, SaysOnceWhyASystemIsLeftOutOfASweep) {
  TinyHead head;
  head.train.resize(0, kDim);
  const std::filesystem::path untaught = folder_.path() / "untaught.safetensors";
  head.write(untaught);
  const ProgramRun run =
      run_tool("--sweep --head " + untaught.string() + " --rounds 1 --timed 20 --backends fused,l2s");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::string note = "\nwithout l2s: there are no training contexts; at least 1 is needed\n";
  EXPECT_NE(run.out.find(note), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("without "), run.out.rfind("without ")) << run.out;
}

TEST_F(BenchProgram, WritesAReportThatNeedsNoOtherFile) {
  const std::filesystem::path page = folder_.path() / "report.html";
  const ProgramRun run =
      measure("--sweep --backends fused,fgd,certified,peer:hnswlib --html " + page.string());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::string html = read_text(page);
  for (const char* part : {"<!DOCTYPE html>", "<svg", "</svg>", "fgd", "certified",
                           "timed beside the reference anew, so speedups are not the ratios of the µs",
                           "<th>build MB</th>", "prefers-color-scheme: dark", "@media print", "</html>"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  // It names its command, and its rows are there to be copied.
  EXPECT_NE(html.find("--sweep --backends fused,fgd,certified,peer:hnswlib --html "), std::string::npos);
  EXPECT_NE(html.find("system,settings,us_per_query,speedup,p_at_1,p_at_5,"), std::string::npos);
  EXPECT_NE(html.find("\\begin{tabular}{llrrrrr}"), std::string::npos);
  for (const char* part : {"<script", "<link", "src=", "url(", "@import"}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(html.find("nan"), std::string::npos);
  // No dot is "0.31× faster", and reading more takes no less than reading less.
  const std::string faster = "× faster, ";
  for (std::size_t at = html.find(faster); at != std::string::npos; at = html.find(faster, at + 1)) {
    EXPECT_GE(std::stod(html.substr(html.rfind('\n', at) + 1)), 1.0);
  }
  std::istringstream work(html.substr(html.find("<h2>Work</h2>")));
  std::size_t guides = 0;
  for (std::string text; std::getline(work, text, '<');) {
    std::array<double, 4> ends = {};
    if (std::sscanf(text.c_str(), R"(line class="guide" x1="%lf" y1="%lf" x2="%lf" y2="%lf")", &ends[0],
                    &ends[1], &ends[2], &ends[3]) != 4) {
      continue;
    }
    EXPECT_GE(ends[1], ends[3]) << text;  // an image's y grows downwards
    ++guides;
  }
  EXPECT_GT(guides, 2U);
}

/// The cells of a page's table after its row's name, tags left out.
std::vector<std::string> html_cells(const std::string& html, const std::string& name) {
  const std::size_t row = html.rfind(">" + name + "</td>");
  std::istringstream rest(html.substr(row, html.find("</tr>", row) - row));
  std::vector<std::string> cells;
  std::string text;
  std::getline(rest, text, '<');
  while (std::getline(rest, text, '>') && std::getline(rest, text, '<')) {
    if (rest.peek() == '/') cells.push_back(text);
  }
  return cells;
}

TEST_F(BenchProgram, ShowsTheSameTableOnAPage) {
  const std::filesystem::path page = folder_.path() / "report.html";
  for (const std::string options : {"", " --batch 8"}) {
    const ProgramRun run = measure("--backends fused,certify:l2s --set certify:l2s.clusters=4 --html " +
                                   page.string() + options);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const std::string html = read_text(page);
    for (const std::string name : {"fused", "certify:l2s"}) {
      const std::size_t begin = run.out.find("\n" + name + " ") + 1;
      std::istringstream printed(
          run.out.substr(begin + name.size(), run.out.find('\n', begin) - begin - name.size()));
      std::string on_page;
      for (const std::string& cell : html_cells(html, name)) on_page += cell + " ";
      std::istringstream shown(on_page);
      using Words = std::istream_iterator<std::string>;
      EXPECT_EQ(std::vector<std::string>(Words(shown), {}), std::vector<std::string>(Words(printed), {}));
    }
    EXPECT_NE(html.find("% repaired; "), std::string::npos);
    EXPECT_EQ(html.find("<td data-label=\"of limit\">-</td>") != std::string::npos, !options.empty());
  }
}

TEST_F(BenchProgram, DrawsFiguresOfItsMeasurements) {
  const std::filesystem::path json = folder_.path() / "measured.json";
  EXPECT_EQ(measure("--sweep --backends fused,fgd,certified --json " + json.string()).exit_code, 0);
  const std::string both = json.string() + " " + json.string();
  for (const std::string theme : {"light", "dark"}) {
    const std::filesystem::path figure = folder_.path() / (theme + ".svg");
    const ProgramRun run =
        run_tool("plot precision --json " + both + " --theme " + theme + " --out " + figure.string());
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const std::string svg = read_text(figure);
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    for (const char* part : {">fgd</text>", ">certified</text>", ">P@5</text>", "tiny, 300 × 16"}) {
      EXPECT_NE(svg.find(part), std::string::npos) << part;
    }
    // An image resolves no variables, and tells no tooltips.
    for (const char* part : {"var(", "nan", "<script", "href"})
      EXPECT_EQ(svg.find(part), std::string::npos) << part;
  }
  const std::filesystem::path figure = folder_.path() / "time.svg";
  EXPECT_EQ(run_tool("plot vocabulary --json " + json.string() + " --out " + figure.string()).exit_code, 0);
  EXPECT_NE(read_text(figure).find(">V, tokens</text>"), std::string::npos);
}

TEST_F(BenchProgram, DrawsTimeAgainstTheVocabularyOfComparableRunsAlone) {
  const auto write = [&](const char* name, const char* head, const char* rest) {
    std::ofstream(folder_.path() / name)
        << R"({"machine":{"cpu":"one"},"batch":1,"results":[{"backend":"fused","us_per_query":2}],"head":)"
        << head << rest;
    return (folder_.path() / name).string();
  };
  const std::string first = write("1.json", R"({"vocab":10,"dim":4,"type":"float32"})", R"(,"threads":1})");
  const std::string larger = write("2.json", R"({"vocab":99,"dim":4,"type":"float32"})", R"(,"threads":1})");
  const std::string longer = write("3.json", R"({"vocab":99,"dim":8,"type":"float32"})", R"(,"threads":1})");
  const std::string shared = write("4.json", R"({"vocab":99,"dim":4,"type":"float32"})", R"(,"threads":2})");
  const auto plot = [&](const std::string& files) {
    return run_tool("plot vocabulary --json " + files + " --out " + (folder_.path() / "v.svg").string());
  };
  EXPECT_EQ(plot(first + " " + larger).exit_code, 0);
  expect_error(plot(first + " " + longer), 1,
               longer + ": d is 8, that of " + first + " is 4; only V may differ");
  expect_error(plot(first + " " + shared), 1, "threads is 2");
}

TEST_F(BenchProgram, DrawsNamesAsXmlMayHaveThem) {
  const std::filesystem::path json = folder_.path() / "named.json";
  std::ofstream(json) << R"({"head":{"name":"a\u0001<b","vocab":9,"dim":4},)"
                      << R"("results":[{"backend":"c\u0000&d","p_at":{"5":1},"speedup":2}]})";
  const ProgramRun run = run_tool("plot precision --json " + json.string() + " --out -");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find(">a?&lt;b, 9 × 4</text>"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find(">c?&amp;d</text>"), std::string::npos) << run.out;
}

TEST_F(BenchProgram, DrawsNothingOfOtherFiles) {
  const std::string out = " --out " + (folder_.path() / "figure.svg").string();
  const std::filesystem::path other = folder_.path() / "other.json";
  expect_error(run_tool("plot precision --json " + other.string() + out), 1,
               "cannot open: No such file or directory");
  std::ofstream(other) << "{\"results\": 3}";
  expect_error(run_tool("plot precision --json " + other.string() + out), 1, "not a measurement");
  expect_error(run_tool("plot precision --json " + folder_.path().string() + out), 1,
               folder_.path().string() + ": is a folder, not a measurement");
  std::ofstream(other) << "{}";
  expect_error(run_tool("plot precision --json " + other.string() + out), 1,
               other.string() + ": is not a measurement that measure --json has written: key 'results' not");
  std::ofstream(other) << R"({"results":[{"backend":"fused","p_at":{"1":1,"10":1,"5":1}}]})";
  expect_error(run_tool("plot precision --k 3 --json " + other.string() + out), 1,
               other.string() + ": was measured for k = 1, 5 and 10, not 3");
  expect_error(run_tool("plot precision --json " + other.string() + " --out " + other.string()), 2,
               "--out is the file of --json, " + other.string() + "; name another");
  const auto write = [&other](const char* vocab, const char* speedup, const char* microseconds) {
    std::ofstream(other)
        << R"({"machine":{"cpu":"one"},"threads":1,"batch":1,"head":{"name":"n","dim":4,"type":"float32",)"
        << R"("vocab":)" << vocab << R"(},"results":[{"backend":"fused","p_at":{"5":1},"speedup":)" << speedup
        << R"(,"us_per_query":)" << microseconds << "}]}";
  };
  write("9", "0", "1");
  expect_error(run_tool("plot precision --json " + other.string() + out), 1,
               other.string() + ": speedup is 0; it must be above 0");
  write("-5", "1", "1");
  for (const char* const figure : {"precision", "vocabulary"}) {
    expect_error(run_tool("plot " + std::string(figure) + " --json " + other.string() + out), 1,
                 other.string() + ": vocab is -5; it must be above 0");
  }
  write("9", "1", "-3.5");
  expect_error(run_tool("plot vocabulary --json " + other.string() + out), 1,
               other.string() + ": us_per_query is -3.5; it must be above 0");
  std::ofstream(other) << "no JSON";
  expect_error(run_tool("plot precision --json " + other.string() + out), 1, "is not valid JSON");
  expect_error(run_tool("plot circles --json " + other.string() + out), 2, "circles");
  expect_error(run_tool("plot precision --json " + other.string() + " --out figure.png"), 2,
               "--out figure.png: figures are written as SVG; name a file that ends in .svg");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "figure.svg"));
}

TEST_F(BenchProgram, RepeatsThePapersExperiments) {
  const std::string small = " --set l2s.rounds=1 wta-lsh.bands=40 wta-lsh-each.bands=40";
  const std::string_view few = "--queries";
  const std::map<std::string, std::string> columns = {
      {"clusters", "clusters"}, {"vocabulary", "full softmax"}, {"k", "dist_cnt"},
      {"beam", "wta-lsh-each"}, {"top-frequent", "T "},         {"bounds", "survivors"},
      {"fusion", "one pass"},   {"thresholds", "best slice's"}};
  for (const bench::Ablation& ablation : bench::ablations()) {
    SCOPED_TRACE(ablation.name);
    const bool takes_few =
        std::find(ablation.unused.begin(), ablation.unused.end(), few) == ablation.unused.end();
    const ProgramRun run =
        measure("--ablation " + ablation.name + (takes_few ? " --queries 60" : "") + small);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_NE(run.out.find(ablation.summary + "\n"), std::string::npos) << run.out;
    EXPECT_GE(std::count(run.out.begin(), run.out.end(), '\n'), 6) << run.out;
    const auto column = columns.find(ablation.name);
    ASSERT_NE(column, columns.end()) << "which column tells it from the others?";
    EXPECT_NE(run.out.find(column->second), std::string::npos) << run.out;
  }
  expect_error(measure("--ablation colours"), 2, "there are clusters");
}

TEST_F(BenchProgram, CountsTheDistancesOfScans) {
  // Longer lists than a sixteenth of the vocabulary are not searched for: all rows are scanned.
  std::istringstream lines(measure("--ablation k --queries 60").out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("200 ")) continue;
    EXPECT_NE(line.find(" 300 "), line.rfind(" 300 ")) << line;
    return;
  }
  ADD_FAILURE() << "no row of ef_search = 200";
}

TEST_F(BenchProgram, SaysWhichBoundsHaveBoxes) {
  // --set does not change what a row's name promises.
  const ProgramRun run = measure("--ablation bounds --queries 60 --set l2s.rounds=1 certified.boxes=always");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::map<std::string, std::vector<std::string>> boxes;  // by label: what stands in the second column
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t gap = line.find("  ");
    if (gap == std::string::npos) continue;
    std::istringstream cells(line.substr(gap));
    cells >> boxes[line.substr(0, gap)].emplace_back();
  }
  using Cells = std::vector<std::string>;
  EXPECT_EQ(boxes["k = 5"], Cells{"boxes"});
  EXPECT_EQ(boxes["balls, 18"], Cells{"-"});
  for (const std::string prefix : {"16", "32", "64"}) {
    EXPECT_EQ(boxes["W's own SVD, prefix " + prefix], Cells{"never"});
    EXPECT_EQ(boxes["contexts' eigenvectors, prefix " + prefix], Cells{"never"});
    EXPECT_EQ(boxes["balanced, prefix " + prefix], (Cells{"never", "always"}));
  }
  EXPECT_EQ(boxes["certified, its own threshold"], Cells{"automatic"});
  EXPECT_EQ(boxes["certified, L2S's threshold"], Cells{"automatic"});
}

TEST_F(BenchProgram, RefusesWhatItCannotMeasure) {
  expect_error(run_tool("--head /nonexistent.safetensors"), 1, "/nonexistent.safetensors");
  expect_error(run_tool("--backends exact"), 2, "--head");
  expect_error(measure("--backends exact,unheard-of"), 2,
               "there is no backend \"unheard-of\"; there are exact");
  expect_error(measure("--backends ,"), 2, "--backends");
  expect_error(measure("--set certified.colour=3"), 2,
               "certified has no parameter \"colour\"; it has prefix");
  expect_error(measure("--set exact.colour=3"), 2, "it has none");
  expect_error(measure("--set certified.width=wide"), 2, "certified.width must be a whole number from 0 on");
  expect_error(measure("--set certified.width=-1"), 2, "not \"-1\"");
  expect_error(measure("--set width=8"), 2, "backend.parameter=value");
  expect_error(measure("--set nothing.width=8"), 2, "there is no backend \"nothing\"");
  expect_error(measure("--set l2s.clusters=0"), 2, "l2s.clusters must be at least 1, not \"0\"");
  expect_error(measure("--set l2s.lambda=nan"), 2, "l2s.lambda must be above 0 and below 1, not \"nan\"");
  expect_error(measure("--backends svd --set svd.preview_width=1000"), 1, "svd: preview_width is 1000");
  expect_error(run_tool("--decode --head " + head_.string()), 1,
               "tiny.safetensors: --decode needs a language model file (lstm.*)");
  expect_error(measure("--k 0"), 2, "--k");
  expect_error(measure("--k five"), 2, "--k");
  expect_error(measure("--threads 3 --batch 2"), 2, "--batch");
  expect_error(measure("--json /nonexistent/out.json"), 1, "/nonexistent/out.json");
  expect_error(measure("--colour"), 2, "--colour");
}

TEST_F(BenchProgram, NamesABackendOnceInItsRefusal) {
  for (const std::string backend : {"l2s", "l2s-kmeans", "certify:l2s-kmeans"}) {
    const ProgramRun run = measure("--backends " + backend + " --set " + backend + ".label_depth=1");
    expect_error(run, 1, "topksoftmax: " + backend + ": ");
    EXPECT_EQ(run.err.find("l2s: l2s"), std::string::npos) << run.err;
    EXPECT_EQ(run.err.find("kmeans: l2s"), std::string::npos) << run.err;
  }
}

TEST_F(BenchProgram, RefusesAHeadWithoutTestContexts) {
  const std::filesystem::path bare = folder_.path() / "bare.safetensors";
  TinyHead head;
  head.test.resize(0, kDim);
  head.write(bare);
  expect_error(run_tool("--head " + bare.string()), 1, "there are no contexts to measure on");
}

TEST_F(BenchProgram, SaysWhatGivesContextsToLearnFrom) {
  const std::filesystem::path bare = folder_.path() / "bare.safetensors";
  TinyHead head;
  head.train.resize(0, kDim);
  head.write(bare);
  const std::string why = "bare.safetensors: there are no contexts to learn from; --contexts FILE gives some";
  const std::string of_bare = " --head " + bare.string();
  expect_error(run_tool("tune --target p5=0.99" + of_bare), 1, why);
  const std::string out = " --out " + (folder_.path() / "bare.index").string();
  expect_error(run_tool("build --backend l2s" + of_bare + out), 1, why);
  EXPECT_EQ(run_tool("build --backend quantized" + of_bare + out).exit_code, 0);
}

TEST_F(BenchProgram, RefusesNumbersThatAreNoneInShort) {
  const std::string wanted = " must be a whole number from 1 to ";
  for (const std::string option : {"--k", "--queries", "--timed", "--rounds", "--threads", "--batch"}) {
    for (const std::string value : {"0", "-1", "18446744073709551615", "1e3", "nan"}) {
      expect_error(measure(option + "=" + value), 2, option + ": \"" + value + "\"" + wanted);
    }
  }
}

TEST_F(BenchProgram, TakesBatchesLargerThanTheContexts) {
  EXPECT_EQ(measure("--backends exact,fused --batch 1000000000").exit_code, 0);
}

TEST_F(BenchProgram, RefusesOptionsThatWouldDoNothing) {
  const std::filesystem::path out = folder_.path() / "out.json";
  const std::string json = " --json " + out.string();
  expect_error(measure("--ablation k" + json), 2, "--ablation cannot be combined with --json");
  expect_error(measure("--ablation k --backends fused"), 2, "--ablation cannot be combined with --backends");
  expect_error(measure("--ablation k --k 3"), 2, "--ablation k cannot be combined with --k");
  expect_error(measure("--ablation fusion --batch 2"), 2,
               "--ablation fusion cannot be combined with --batch");
  expect_error(measure("--ablation k --sweep"), 2, "--ablation cannot be combined with --sweep");
  expect_error(measure("--decode --sweep"), 2, "--decode cannot be combined with --sweep");
  expect_error(run_tool("--decode --head x --html y"), 2, "--decode cannot be combined with --html");
  expect_error(run_tool(json + " tune --head x"), 2, "tune");
  expect_error(measure("--sweep --backends fgd --set fgd.ef_search=30"), 2, "--sweep varies fgd.ef_search");
  expect_error(measure("--backends fused --set fgd.M=8"), 2,
               "--set names the backend fgd, which is not among those measured");
  expect_error(measure("--set fgd.M=8 --set fgd.M=12"), 2, "--set gives fgd.M twice");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(BenchProgram, LeavesOldReportsUntilTheNewAreThere) {
  const std::filesystem::path old = folder_.write("old.json", "of last year");
  const std::string json = " --json " + old.string();
  expect_error(run_tool("--head /nonexistent.safetensors" + json), 1, "/nonexistent.safetensors");
  expect_error(measure("--backends svd --set svd.preview_width=1000" + json), 1, "svd: ");
  EXPECT_EQ(read_text(old), "of last year");

  std::filesystem::permissions(old, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const std::filesystem::path link = folder_.path() / (std::string(250, 'l') + ".json");
  std::filesystem::create_symlink("old.json", link);
  EXPECT_EQ(measure("--backends fused --json " + link.string()).exit_code, 0);
  EXPECT_TRUE(nlohmann::json::accept(read_text(old)));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(std::filesystem::status(old).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(folder_.list(), (std::vector<std::string>{link.filename(), "old.json", "tiny.safetensors"}));
  EXPECT_EQ(measure("--backends fused --html " + (folder_.path() / std::string(255, 'h')).string()).exit_code,
            0);
}

TEST_F(BenchProgram, RefusesToWriteTwoThingsToOneFile) {
  const std::string head = testing::read_bytes(head_);
  const std::filesystem::path link = folder_.path() / "link";
  std::filesystem::create_symlink(head_, link);
  for (const std::string option : {"--json ", "--html "}) {
    expect_error(measure(option + head_.string()), 2, "is the file of --head");
    expect_error(measure(option + link.string()), 2, "is the file of --head");
  }
  const std::string input = folder_.write("input", "of last year").string();
  expect_error(measure("--contexts " + input + " --html " + input), 2, "--html is the file of --contexts, ");
  expect_error(run_tool("--head " + head_.string() + " --perplexity --text " + input + " --json " + input), 2,
               "--json is the file of --text, " + input + "; name another");
  EXPECT_EQ(read_text(input), "of last year");
  const std::string out = (folder_.path() / "out").string();
  expect_error(measure("--json " + out + " --html " + folder_.path().string() + "/./out"), 2,
               "--html and --json are one file");
  expect_error(measure("--json - --html -"), 2, "--html and --json are both standard output");
  expect_error(measure("--json ''"), 2, "--json: must be the name of a file");
  EXPECT_EQ(testing::read_bytes(head_), head);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(BenchProgram, PrintsNothingIntoWhatItWritesToStandardOutput) {
  const ProgramRun page = measure("--backends fused --html -");
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_TRUE(page.out.starts_with("<!DOCTYPE html>")) << page.out.substr(0, 200);
  EXPECT_TRUE(page.out.ends_with("</html>\n"));
  const std::filesystem::path json = folder_.path() / "measured.json";
  EXPECT_EQ(measure("--backends fused --k 5 --json " + json.string()).exit_code, 0);
  const std::string figure = run_tool("plot precision --json " + json.string() + " --out -").out;
  EXPECT_TRUE(figure.starts_with("<svg ")) << figure.substr(0, 200);
  EXPECT_TRUE(figure.ends_with("</svg>\n"));
}

TEST_F(BenchProgram, WritesToDevices) {
  EXPECT_EQ(measure("--backends fused --json /dev/null --html /dev/null").exit_code, 0);
  EXPECT_FALSE(std::filesystem::is_regular_file("/dev/null"));
  // Standard output goes to a file, whose table the JSON must not replace.
  const ProgramRun run = measure("--backends fused --json /dev/stdout");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::size_t json = run.out.find("\n{\n");
  ASSERT_NE(json, std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\nfused "), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(run.out.substr(json)));
}

TEST_F(BenchProgram, WritesWhatCanBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const std::filesystem::path page = folder_.path() / "report.html";
  const ProgramRun run = measure("--backends fused --json /dev/full --html " + page.string());
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("/dev/full: cannot be written"), std::string::npos) << run.err;
  EXPECT_TRUE(read_text(page).ends_with("</html>\n"));
}

TEST_F(BenchProgram, WritesTheNameOfAHeadThatIsNoUtf8) {
  const std::filesystem::path odd = folder_.path() / "odd\xFF.safetensors";
  std::filesystem::copy_file(head_, odd);
  const std::filesystem::path out = folder_.path() / "out.json";
  const ProgramRun run =
      run_tool("--head " + odd.string() + " --rounds 1 --timed 20 --backends fused --json " + out.string());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(nlohmann::json::accept(read_text(out)));
}

TEST_F(BenchProgram, LeavesOutOfAllWhatCannotBeBuiltForTheHead) {
  const ProgramRun run = measure("--set svd.preview_width=1000");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.out.find("without svd: "), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\nfused "), std::string::npos);
}

}  // namespace
}  // namespace topksoftmax
