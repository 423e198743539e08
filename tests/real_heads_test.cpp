// SPDX-License-Identifier: Apache-2.0
//
// On layers of real models, where their head files are at hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "support/by_bounds.hpp"
#include "support/statistics.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/evaluation/precision.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/l2s/l2s.hpp"

namespace topksoftmax {
namespace {

/// A head file of TOPKSOFTMAX_HEADS.
class RealHeads : public ::testing::TestWithParam<std::string> {
 protected:
  static std::filesystem::path path(const std::string& name) {
    return std::filesystem::path(TOPKSOFTMAX_HEADS) / (name + ".safetensors");
  }
};

double precision_at_5(const TopKSoftmax& head, const RowMajorMatrix& contexts) {
  const GroundTruth truth = find_ground_truth(head.layer(), contexts, 5, 0);
  const auto answers = answer_contexts(head, contexts, {.k = 5, .probabilities = false});
  return measure_precision(head.layer(), contexts, truth, answers).at[4];
}

TEST_F(RealHeads, LearningClustersBeatsKMeansAtEqualBudget) {
#ifdef TOPKSOFTMAX_SANITIZED
  GTEST_SKIP() << "sanitizers make training too slow";
#endif
  if (!std::filesystem::exists(path("translation"))) GTEST_SKIP() << path("translation") << " is not there";
  const HeadFile file = HeadFile::open(path("translation"));
  const SoftmaxLayer layer = file.layer();
  const RowMajorMatrix train = file.train_contexts().topRows(40000);
  const RowMajorMatrix test = file.test_contexts().topRows(2000);
  L2SOptions options;
  options.budget = 200;
  options.rounds = 3;
  const double learned = precision_at_5(*L2S::train(layer, train, options), test);
  const double kmeans = precision_at_5(*L2S::train_kmeans(layer, train, options), test);
  EXPECT_GT(learned, kmeans);
  EXPECT_GT(learned, 0.96);
}

// Sets have the best tokens of the contexts that they were learned from, and few of these leave much outside.
TEST_F(RealHeads, TheErrorOfLearnedLogZIsThatOfContextsUnknownToTheSets) {
  if (!std::filesystem::exists(path("translation"))) GTEST_SKIP() << path("translation") << " is not there";
  const HeadFile file = HeadFile::open(path("translation"));
  const SoftmaxLayer layer = file.layer();
  const RowMajorMatrix all = file.train_contexts();
  RowMajorMatrix train(1000, all.cols());
  for (Eigen::Index run = 0; run < 10; ++run)
    train.middleRows(100 * run, 100) = all.middleRows(run * ((all.rows() - 100) / 10), 100);
  const RowMajorMatrix test = file.test_contexts().topRows(1000);
  const auto head = L2S::train_kmeans(layer, train);
  const GroundTruth truth = find_ground_truth(layer, test, 5);
  const Precision seen = measure_precision(layer, test, truth, answer_contexts(*head, test, {.k = 5}));
  EXPECT_LT(seen.log_prob_error.p99, 2.0 * head->log_z_error()->p99);
}

TEST_P(RealHeads, CertifiedIsExactAndReadsAFewPercent) {
  if (!std::filesystem::exists(path(GetParam()))) GTEST_SKIP() << path(GetParam()) << " is not there";
  const HeadFile file = HeadFile::open(path(GetParam()));
  const SoftmaxLayer layer = file.layer();
  const RowMajorMatrix train = file.train_contexts().topRows(20000);
  const RowMajorMatrix test = file.test_contexts().topRows(300);
  const auto certified = Certified::build(layer, train);
  const auto exact = Exact::make(layer);
  std::size_t bytes = 0;
  testing::ByBounds by_bounds;
  for (const std::size_t k : {1U, 5U, 50U}) {
    for (Eigen::Index i = 0; i < test.rows(); ++i) {
      const TopK answer = certified->query(test.row(i), {.k = k});
      const TopK truth = exact->query(test.row(i), {.k = k});
      by_bounds.count(answer, layer.vocab());
      ASSERT_TRUE(answer.certified);
      ASSERT_EQ(answer.ids, truth.ids);
      ASSERT_EQ(answer.logits, truth.logits);
      ASSERT_LE(answer.log_z_low, truth.log_z + 1e-5);
      ASSERT_GE(answer.log_z_high, truth.log_z - 1e-5);
      if (k == 5) bytes += answer.work.bytes_read;
    }
  }
  EXPECT_LT(bytes, layer.bytes() * 300 / 10);
  by_bounds.expect_mostly_by_bounds();
}

INSTANTIATE_TEST_SUITE_P(Files, RealHeads, ::testing::Values("novels", "translation"),
                         [](const auto& name) { return name.param; });

/// The probabilities of a temperature and a nucleus, from logits.
std::vector<double> nucleus_of(const std::span<const float> logits, double temperature, double share) {
  std::vector<double> p;
  for (const float logit : logits) p.push_back(std::exp(static_cast<double>(logit) / temperature));
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
  const double all = std::accumulate(p.begin(), p.end(), 0.0);
  double inside = 0.0;
  for (const std::size_t id : order) {
    if (inside >= share * all) {
      p[id] = 0.0;
    } else {
      inside += p[id];
    }
  }
  for (double& x : p) x /= inside;
  return p;
}

class DrawsOnRealHeads : public RealHeads {};

TEST_P(DrawsOnRealHeads, AreFromTheLayersDistribution) {
#ifdef TOPKSOFTMAX_SANITIZED
  GTEST_SKIP() << "sanitizers make builds too slow";
#endif
  if (!std::filesystem::exists(path(GetParam()))) GTEST_SKIP() << path(GetParam()) << " is not there";
  constexpr std::size_t draws = 20000;
  const HeadFile file = HeadFile::open(path(GetParam()));
  const SoftmaxLayer layer = file.layer();
  const auto certified = Certified::build(layer, file.train_contexts().topRows(3000), {.outside_sample = 0});
  const RowMajorMatrix test = file.test_contexts().topRows(2);
  Workspace workspace;
  for (Eigen::Index row = 0; row < test.rows(); ++row) {
    const Eigen::VectorXf h = test.row(row);
    for (const SamplingOptions& options :
         {SamplingOptions{}, SamplingOptions{.temperature = 0.8, .top_p = 0.9}}) {
      const std::vector<double> p =
          nucleus_of(certified->logits(h, {}, workspace), options.temperature, options.top_p);
      std::vector<std::size_t> met(p.size());
      Sampler sampler(options);
      RandomStream random(7);
      for (std::size_t n = 0; n < draws; ++n)
        ++met[static_cast<std::size_t>(sampler.draw(*certified, h, random).id)];
      // Cells of five draws at least; what is rarer shares one.
      std::vector<std::size_t> counts(1);
      std::vector<double> expected(1);
      for (std::size_t id = 0; id < p.size(); ++id) {
        if (p[id] == 0.0) {
          EXPECT_EQ(met[id], 0U) << id;
        } else if (p[id] * draws >= 5.0) {
          counts.push_back(met[id]);
          expected.push_back(p[id]);
        } else {
          counts[0] += met[id];
          expected[0] += p[id];
        }
      }
      EXPECT_LT(testing::chi_square_deviations(counts, expected), 4.0) << row << ' ' << options.top_p;
      EXPECT_LT(sampler.full_scans(), draws / 5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, DrawsOnRealHeads, ::testing::Values("novels", "translation", "code"),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace topksoftmax
