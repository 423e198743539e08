// SPDX-License-Identifier: Apache-2.0
//
// On layers of real models, where their head files are at hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/by_bounds.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
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

}  // namespace
}  // namespace topksoftmax
