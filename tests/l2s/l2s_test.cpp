// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/l2s.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <vector>

#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/l2s/build.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::random_matrix;

double precision(const L2S& head, const Exact& exact, const RowMajorMatrix& contexts, std::size_t k) {
  double found = 0.0;
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    const TopK truth = exact.query(contexts.row(i), {.k = k});
    for (const TokenId id : head.query(contexts.row(i), {.k = k}).ids) {
      found += std::count(truth.ids.begin(), truth.ids.end(), id) != 0 ? 1.0 : 0.0;
    }
  }
  return found / static_cast<double>(contexts.rows() * static_cast<Eigen::Index>(k));
}

L2SOptions small(double budget) {
  L2SOptions options;
  options.clusters = 12;
  options.budget = budget;
  options.batch_size = 64;
  return options;
}

TEST(L2S, FindsTheTopTokensOfContextsItHasNotSeen) {
  const SoftmaxLayer layer = random_layer(2000, 16, 1);
  const RowMajorMatrix contexts = clustered_contexts(3000, 16, 12, 2);
  const auto exact = Exact::make(layer);
  const auto learned = L2S::train(layer, contexts.topRows(2700), small(40));
  EXPECT_GT(precision(*learned, *exact, contexts.bottomRows(300), 1), 0.95);
  EXPECT_GT(precision(*learned, *exact, contexts.bottomRows(300), 5), 0.9);
  double candidates = 0.0;
  for (Eigen::Index i = 2700; i < 3000; ++i) {
    candidates += static_cast<double>(learned->query(contexts.row(i), {.k = 5}).work.candidates) / 300.0;
  }
  EXPECT_LT(candidates, 60.0);
  EXPECT_LT(learned->index_bytes(), layer.bytes() / 3);
}

TEST(L2S, MoreEffortVisitsMoreClusters) {
  const SoftmaxLayer layer = random_layer(2000, 16, 1);
  const RowMajorMatrix contexts = clustered_contexts(2000, 16, 12, 2);
  const auto exact = Exact::make(layer);
  const auto head = L2S::train_kmeans(layer, contexts, small(20));
  std::size_t previous = 0;
  for (const std::size_t effort : {1U, 2U, 5U, 11U}) {
    const TopK answer = head->query(contexts.row(7), {.k = 5, .effort = effort});
    EXPECT_GT(answer.work.candidates, previous);
    previous = answer.work.candidates;
  }
  const TopK all = head->query(contexts.row(7), {.k = 5, .effort = 12});
  EXPECT_EQ(all.ids, exact->query(contexts.row(7), {.k = 5}).ids);
  EXPECT_EQ(head->name(), "l2s-kmeans");
}

TEST(L2S, VisitsTheClustersWithTheLargestProducts) {
  const RowMajorMatrix contexts = clustered_contexts(2000, 16, 12, 2);
  const auto head = L2S::train_kmeans(random_layer(2000, 16, 1), contexts, small(20));
  const L2SModel& model = head->screener().model();
  const Eigen::MatrixXd v = Eigen::Map<const RowMajorMatrix>(model.v.data(), 12, 16).cast<double>();
  for (const std::size_t effort : {2U, 3U}) {
    for (Eigen::Index i = 0; i < 20; ++i) {
      const Eigen::VectorXf h = contexts.row(i);
      const Eigen::VectorXd products = v * h.cast<double>();
      std::vector<std::size_t> best(12);
      std::iota(best.begin(), best.end(), std::size_t{0});
      std::sort(best.begin(), best.end(), [&](std::size_t a, std::size_t b) {
        return products[static_cast<Eigen::Index>(a)] > products[static_cast<Eigen::Index>(b)];
      });
      std::set<TokenId> expected;
      for (std::size_t n = 0; n < effort; ++n)
        expected.insert(model.sets[best[n]].begin(), model.sets[best[n]].end());
      Workspace workspace;
      Query query;
      query.h = h.data();
      query.effort = effort;
      const Candidates found = head->screener().screen(query, workspace);
      EXPECT_EQ(std::set<TokenId>(found.ids.begin(), found.ids.end()), expected);
      EXPECT_EQ(found.ids.size(), expected.size()) << "each once";
    }
  }
}

TEST(L2S, LearnsFromAsManyLabelsAsAskedFor) {
  // One context, logits 3, 2.5, 1.5 and 0; room for one candidate, the lowest id of equals.
  const RowMajorMatrix W = (RowMajorMatrix(4, 1) << 3.0F, 2.5F, 1.5F, 0.0F).finished();
  const RowMajorMatrix contexts = RowMajorMatrix::Ones(10, 1);
  L2SOptions options = small(1);
  options.clusters = 1;
  options.lambda = 0.01;
  options.label_depth = 4;
  options.near_miss_value = 0.5;
  for (const std::size_t labels : {1U, 2U, 3U}) {
    options.label_count = labels;
    const auto head = L2S::train_kmeans(SoftmaxLayer::own(W), contexts, options);
    const ScreeningLoss& loss = head->screener().model().history.front();
    double near_misses = 0.0;
    for (std::size_t n = labels; n < 4; ++n)
      near_misses += 0.5 * std::exp(static_cast<double>(W(static_cast<Eigen::Index>(n), 0)) -
                                    static_cast<double>(W(static_cast<Eigen::Index>(labels) - 1, 0)));
    EXPECT_EQ(loss.set_size, 1.0);
    EXPECT_NEAR(loss.missed, static_cast<double>(labels - 1), 1e-9);
    EXPECT_NEAR(loss.objective, static_cast<double>(labels - 1) + near_misses, 1e-6);
  }
}

TEST(L2S, CountsAllThatItKeepsOfAModel) {
  // Sets too short and clusters too few for copies in 8 bits: twice the vectors, the sets and where they
  // begin.
  const RowMajorMatrix contexts = clustered_contexts(500, 16, 12, 2);
  L2SOptions options = small(20);
  options.outside_sample = 0;
  const auto head = L2S::train_kmeans(random_layer(2000, 16, 1), contexts, options);
  const CandidateSets& sets = head->screener().model().sets;
  EXPECT_FALSE(head->screener().narrows());
  EXPECT_EQ(head->index_bytes(), 2U * 4U * 12U * 16U + 4U * sets.values().size() + 8U * 13U);
}

TEST(L2S, FewOrEqualContextsAndEmptyClustersStillAnswer) {
  const SoftmaxLayer layer = random_layer(300, 8, 1);
  const RowMajorMatrix few = random_matrix(5, 8, 3);
  const RowMajorMatrix equal = random_matrix(1, 8, 3).replicate(100, 1);
  for (const RowMajorMatrix& contexts : {few, equal}) {
    const auto head = L2S::train(layer, contexts, small(10));
    for (unsigned seed = 0; seed < 50; ++seed) {
      const TopK answer = head->query(testing::random_vector(8, seed), {.k = 7});
      EXPECT_EQ(answer.size(), 7U);
    }
    EXPECT_EQ(head->query(Eigen::VectorXf::Zero(8), {.k = 7}).size(), 7U);
  }
}

// Of long sets few tokens are scored: the same ones are answered, by an index that was saved as well.
TEST(L2S, AnswersFromLongSetsAsFromAllOfThem) {
  const SoftmaxLayer layer = random_layer(2000, 24, 1);
  const RowMajorMatrix contexts = clustered_contexts(1000, 24, 12, 2);
  const auto head =
      L2S::train(layer, contexts.topRows(900), {.clusters = 2, .budget = 400, .label_depth = 64});
  const testing::TemporaryFolder folder;
  save_index(*head, folder.path() / "f");
  const auto loaded = load_index<L2S>(folder.path() / "f", layer);
  EXPECT_EQ(loaded->index_bytes(), head->index_bytes());
  const TokenMask everything = TokenMask::all(2000);
  for (Eigen::Index i = 900; i < 1000; ++i) {
    const TopK narrowed = head->query(contexts.row(i), {.k = 5});
    const TopK whole = head->query(contexts.row(i), {.k = 5, .allowed = everything});
    EXPECT_GE(whole.work.candidates, 128U);
    EXPECT_LT(narrowed.work.candidates, 64U);
    EXPECT_EQ(narrowed.ids, whole.ids);
    EXPECT_EQ(narrowed.logits, whole.logits);
    EXPECT_LT(narrowed.work.bytes_read, whole.work.bytes_read);
    const TopK again = loaded->query(contexts.row(i), {.k = 5});
    EXPECT_EQ(again.ids, narrowed.ids);
    EXPECT_EQ(again.log_z, narrowed.log_z);
  }
}

TEST(L2S, ReportsItsProgress) {
  const SoftmaxLayer layer = random_layer(100, 8, 1);
  L2SOptions options = small(10);
  double last = -1.0;
  options.progress = [&last](std::string_view, double done) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, 1.0);
    last = done;
  };
  L2S::train(layer, random_matrix(200, 8, 2), options);
  EXPECT_EQ(last, 1.0);
}

TEST(L2S, RefusesContextsItCannotUse) {
  const SoftmaxLayer layer = random_layer(100, 8, 1);
  RowMajorMatrix contexts = random_matrix(20, 8, 2);
  EXPECT_THROW(L2S::train(layer, random_matrix(20, 7, 2)), Error);
  EXPECT_THROW(L2S::train(layer, RowMajorMatrix(0, 8)), Error);
  L2SOptions options = small(10);
  options.label_depth = 2;
  EXPECT_THROW(L2S::train(layer, contexts, options), Error);
  options = small(10);
  options.near_miss_temperature = 0.0;
  EXPECT_THROW(L2S::train(layer, contexts, options), Error);
  contexts(4, 4) = std::numeric_limits<float>::infinity();
  EXPECT_THROW(L2S::train(layer, contexts), Error);
}

}  // namespace
}  // namespace topksoftmax
