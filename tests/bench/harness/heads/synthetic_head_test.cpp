// SPDX-License-Identifier: Apache-2.0
#include "harness/heads/synthetic_head.hpp"

#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/program.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax {
namespace {

using bench::make_synthetic_head;
using bench::SyntheticHead;

SyntheticHead small_head(std::uint64_t seed = 1, double alpha = 1.0) {
  return make_synthetic_head({.vocab = 3000,
                              .dim = 256,
                              .alpha = alpha,
                              .train_contexts = 1000,
                              .test_contexts = 500,
                              .seed = seed});
}

/// The share of the contexts' variance that lies in its largest directions.
double share_of_first(const SyntheticHead& head, Eigen::Index directions) {
  const Eigen::MatrixXd centred = (head.train.rowwise() - head.train.colwise().mean()).cast<double>();
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(centred.transpose() * centred,
                                                              Eigen::EigenvaluesOnly);
  return solver.eigenvalues().tail(directions).sum() / solver.eigenvalues().sum();
}

TEST(SyntheticHead, IsTheSameForASeedAndAnotherForAnother) {
  const SyntheticHead head = small_head();
  EXPECT_EQ(head.weight, small_head().weight);
  EXPECT_EQ(head.test, small_head().test);
  EXPECT_NE(head.weight, small_head(2).weight);
}

TEST(SyntheticHead, HasRowsOfLogNormalLengths) {
  const SyntheticHead head = small_head();
  const Eigen::ArrayXd lengths = head.weight.rowwise().norm().cast<double>().array().log();
  EXPECT_NEAR(std::sqrt((lengths - lengths.mean()).square().mean()), 0.2, 0.01);
}

TEST(SyntheticHead, HasContextsWhoseEnergyFallsWithAlpha) {
  const double gentle = share_of_first(small_head(1, 0.5), 16);
  const double steep = share_of_first(small_head(1, 2.0), 16);
  EXPECT_LT(gentle, 0.4);
  EXPECT_GT(steep, gentle + 0.2);
}

TEST(SyntheticHead, LeansTowardsFrequentTokens) {
  const SyntheticHead head = small_head();
  const RowMajorMatrix logits = head.test * head.weight.transpose();
  const double deviation = std::sqrt((logits.array() - logits.mean()).square().mean());
  EXPECT_NEAR(deviation, 2.2, 0.6);
  int frequent = 0;
  double margin = 0.0;
  for (Eigen::Index i = 0; i < logits.rows(); ++i) {
    Eigen::Index best = 0;
    margin += static_cast<double>(logits.row(i).maxCoeff(&best));
    frequent += best < 300 ? 1 : 0;
  }
  EXPECT_GT(frequent, 100) << "50 would be a tenth of the contexts, as these are of the vocabulary";
  EXPECT_GT(margin / 500.0, 3.5 * 2.2) << "far beyond the largest of so many that do not lean";
}

TEST(MakeHead, WritesAFileThatTheHarnessMeasures) {
  const testing::TemporaryFolder folder(testing::memory_folder());
  const std::string path = (folder.path() / "head.safetensors").string();
  for (const std::string type : {"f32", "f16", "bf16"}) {
    const testing::ProgramRun made = testing::run_tool(
        "make-head --vocab 500 --dim 24 --train 300 --test 60 --alpha 0.7 --type " + type + " --out " + path);
    EXPECT_EQ(made.exit_code, 0) << made.err;
    const HeadFile file = HeadFile::open(path);
    EXPECT_EQ(file.vocab(), 500U);
    EXPECT_EQ(file.train_count(), 300U);
    EXPECT_EQ(file.name(), "synthetic 500 x 24, alpha 0.7");
  }
  const testing::ProgramRun run =
      testing::run_tool("--head " + path + " --backends fused,certified --rounds 1 --timed 20");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("synthetic 500 x 24"), std::string::npos) << run.out;
  EXPECT_EQ(testing::run_tool("make-head --type q4 --out " + path).exit_code, 2);
  EXPECT_EQ(testing::run_tool("make-head --vocab 0 --out " + path).exit_code, 2);
  EXPECT_EQ(testing::run_tool("make-head").exit_code, 2);
}

TEST(MakeHead, TellsTheCommandThatMakesTheHeadAgain) {
  const testing::TemporaryFolder folder(testing::memory_folder());
  const std::string first = (folder.path() / "first.safetensors").string();
  const std::string second = (folder.path() / "second.safetensors").string();
  const std::string options =
      "make-head --vocab 90 --dim 8 --train 30 --test 6 --alpha 0.1234567 --seed 7 --type f16";
  ASSERT_EQ(testing::run_tool(options + " --out " + first).exit_code, 0);
  const std::string told = SafetensorsFile::open(first).metadata().at("provenance");
  EXPECT_EQ(told, "topksoftmax " + options);
  ASSERT_EQ(testing::run_tool(told.substr(told.find("make-head")) + " --out " + second).exit_code, 0);
  EXPECT_EQ(testing::read_text(first), testing::read_text(second));
}

TEST(MakeHead, IsMeasuredInTheTypeThatAnEngineWouldStore) {
  const testing::TemporaryFolder folder(testing::memory_folder());
  const std::string path = (folder.path() / "head.safetensors").string();
  const std::string json = (folder.path() / "out.json").string();
  ASSERT_EQ(testing::run_tool("make-head --vocab 400 --dim 64 --train 50 --test 60 --out " + path).exit_code,
            0);
  const testing::ProgramRun run = testing::run_tool("--head " + path + " --backends fused --as q8_0 --json " +
                                                    json + " --rounds 1 --timed 20");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json rows = nlohmann::json::parse(testing::read_text(json)).at("results");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].at("backend"), "fused:q8_0");
  EXPECT_EQ(rows[1].at("certified_rate"), 0.0);
  EXPECT_GT(rows[1].at("p_at").at("1"), 0.9);
  EXPECT_EQ(rows[1].at("bytes_per_query"), 400.0 * 64.0 / 32.0 * 34.0);
  const testing::ProgramRun refused = testing::run_tool("--head " + path + " --as q5_0");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--as: unknown type q5_0; there is q8_0"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace topksoftmax
