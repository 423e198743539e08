// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/row_clusters/row_clusters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/errors.hpp"
#include "support/executors.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/same_answers.hpp"
#include "support/saved_index.hpp"
#include "support/screened.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"
#include "topksoftmax/registry/standard_loader.hpp"
#include "topksoftmax/row_clusters/balanced_kmeans.hpp"
#include "topksoftmax/row_clusters/build.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::error_of;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::Reference;
using testing::screened;

constexpr Eigen::Index kVocab = 500;
constexpr Eigen::Index kDim = 24;

/// Rows around a few directions, most of them around one, with biases.
SoftmaxLayer crowded_layer() {
  RowMajorMatrix W = clustered_contexts(kVocab, kDim, 9, 3);
  const Eigen::VectorXf crowd = random_vector(kDim, 5);
  for (Eigen::Index i = 0; i < kVocab; i += 2) W.row(i) = crowd.transpose() + 0.2F * W.row(i);
  return SoftmaxLayer::own(std::move(W), random_vector(kVocab, 6));
}

std::vector<std::vector<TokenId>> lists_of(const RowClusters& head) {
  std::vector<std::vector<TokenId>> lists;
  for (std::size_t t = 0; t < head.screener().clusters(); ++t) {
    const auto tokens = head.screener().tokens(t);
    lists.emplace_back(tokens.begin(), tokens.end());
  }
  return lists;
}

std::vector<TokenId> candidates_of(const RowClusters& head, const Eigen::VectorXf& h,
                                   std::size_t effort = 0) {
  std::vector<TokenId> ids = screened(head, h, {.effort = effort});
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// The tokens of the lists with the highest centroid·h + largest bias, in float64.
std::vector<TokenId> best_of(const SoftmaxLayer& layer, const Eigen::MatrixXd& centroids,
                             const std::vector<std::vector<TokenId>>& lists, const Eigen::VectorXf& h,
                             std::size_t visited) {
  std::vector<std::pair<double, std::size_t>> scores;
  for (std::size_t t = 0; t < lists.size(); ++t) {
    double bias = -1e30;
    for (const TokenId id : lists[t]) bias = std::max(bias, static_cast<double>(layer.biases()[id]));
    const double product = centroids.row(static_cast<Eigen::Index>(t)) * h.cast<double>();
    scores.emplace_back(product + bias, t);
  }
  std::sort(scores.rbegin(), scores.rend());
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < visited; ++i) {
    const std::vector<TokenId>& list = lists[scores[i].second];
    ids.insert(ids.end(), list.begin(), list.end());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// The means of the rows of each list, in float64.
Eigen::MatrixXd means(const SoftmaxLayer& layer, const std::vector<std::vector<TokenId>>& lists) {
  const RowMajorMatrix W = layer.weights();
  Eigen::MatrixXd centroids = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(lists.size()), W.cols());
  for (std::size_t t = 0; t < lists.size(); ++t) {
    for (const TokenId id : lists[t]) {
      centroids.row(static_cast<Eigen::Index>(t)) +=
          W.row(id).cast<double>() / static_cast<double>(lists[t].size());
    }
  }
  return centroids;
}

/// All tokens shuffled, in lists of one size.
std::vector<std::vector<TokenId>> shuffled_lists(std::size_t clusters) {
  std::vector<std::vector<TokenId>> lists(clusters);
  for (TokenId i = 0; i < kVocab; ++i) {
    const auto token = static_cast<TokenId>((i * 177) % kVocab);
    lists[static_cast<std::size_t>(i) * clusters / kVocab].push_back(token);
  }
  return lists;
}

std::vector<TokenId> joined(const std::vector<std::vector<TokenId>>& lists) {
  std::vector<TokenId> tokens;
  for (const auto& list : lists) tokens.insert(tokens.end(), list.begin(), list.end());
  return tokens;
}

TEST(RowClusters, HoldEveryTokenOnceAndNoMoreThanTheirShare) {
  for (const SoftmaxLayer& layer : {random_layer(kVocab, kDim, 1), crowded_layer()}) {
    for (const double balance : {1.0, 1.5, 3.0, 1e9}) {
      for (const std::size_t clusters : {1U, 7U, 20U, 499U, 500U, 501U}) {
        const auto head =
            RowClusters::build(layer, {.clusters = clusters, .balance = balance, .iterations = 3});
        const auto lists = lists_of(*head);
        EXPECT_LE(lists.size(), clusters);
        const auto mean = static_cast<double>(kVocab) / static_cast<double>(clusters);
        std::set<TokenId> met;
        for (const auto& list : lists) {
          EXPECT_FALSE(list.empty());
          EXPECT_LE(static_cast<double>(list.size()), std::ceil(balance * mean));
          met.insert(list.begin(), list.end());
        }
        EXPECT_EQ(met.size(), static_cast<std::size_t>(kVocab));
        EXPECT_EQ(joined(lists).size(), met.size());
      }
    }
  }
}

TEST(RowClusters, RowsThatLoseMostWithTheirFirstChoiceComeFirst) {
  // All three like cluster 0 best, which has room for two; the first would lose next to nothing.
  RowMajorMatrix rows(3, 2);
  rows << 0.8F, 0.6F, 1.0F, 0.0F, 0.96F, 0.28F;
  const RowMajorMatrix v = RowMajorMatrix::Identity(2, 2);
  EXPECT_EQ(detail::balanced_assignment(Contexts::of(rows), v, 2, SerialExecutor()),
            (std::vector<std::int32_t>{1, 0, 0}));
}

TEST(RowClusters, FindTheDirectionsThatRowsHave) {
  // Nine directions, rows of very different lengths around each.
  RowMajorMatrix W = clustered_contexts(kVocab, kDim, 10, 3);
  for (Eigen::Index i = 0; i < kVocab; ++i) W.row(i) *= static_cast<float>(1 + i % 7);
  const auto head = RowClusters::build(SoftmaxLayer::own(std::move(W)), {.clusters = 10, .balance = 1.0});
  for (const auto& list : lists_of(*head)) {
    EXPECT_EQ(list.size(), 50U);
    for (const TokenId id : list) EXPECT_EQ(id % 10, list.front() % 10);
  }
}

TEST(RowClusters, VisitThoseWithTheBestMeans) {
  const SoftmaxLayer layer = crowded_layer();
  const auto head = RowClusters::build(layer, {.clusters = 20, .visited = 3});
  const auto lists = lists_of(*head);
  for (unsigned i = 0; i < 30; ++i) {
    const Eigen::VectorXf h = random_vector(kDim, 10 + i);
    for (const std::size_t visited : {1U, 3U, 7U, 15U}) {
      const auto expected = best_of(layer, means(layer, lists), lists, h, visited);
      EXPECT_EQ(candidates_of(*head, h, visited), expected);
      if (visited == 3) {
        EXPECT_EQ(candidates_of(*head, h), expected);
      }
    }
  }
}

TEST(RowClusters, AnswerExactlyAmongTheVisited) {
  const SoftmaxLayer layer = crowded_layer();
  const auto head = RowClusters::build(layer, {.clusters = 20, .visited = 3});
  for (unsigned i = 0; i < 10; ++i) {
    const Eigen::VectorXf h = random_vector(kDim, 50 + i);
    TokenMask mask(kVocab);
    for (const TokenId id : candidates_of(*head, h)) mask.allow(id);
    const TopK expected = Exact::make(layer)->query(h, {.k = 4, .allowed = mask});
    const TopK answer = head->query(h, {.k = 4});
    EXPECT_EQ(answer.ids, expected.ids);
    EXPECT_EQ(answer.logits, expected.logits);
    EXPECT_NEAR(answer.log_z, expected.log_z, 1e-5);
    EXPECT_EQ(answer.normalizer, Normalizer::candidates);
    EXPECT_EQ(answer.work.screened, head->screener().clusters());
  }
}

TEST(RowClusters, AreExactWithFullEffort) {
  const SoftmaxLayer layer = crowded_layer();
  const auto head = RowClusters::build(layer, {.clusters = 20, .visited = 3});
  const Eigen::VectorXf h = random_vector(kDim, 8);
  const Reference exact(layer, h);
  for (const std::size_t effort : {std::size_t{20}, std::size_t{500}, QueryOptions::full_effort}) {
    const TopK answer = head->query(h, {.k = 5, .effort = effort});
    EXPECT_EQ(answer.ids, Exact::make(layer)->query(h, {.k = 5}).ids);
    EXPECT_EQ(answer.normalizer, Normalizer::exact);
    EXPECT_NEAR(answer.log_z, exact.log_z, 1e-4);
  }
}

TEST(RowClusters, VisitAsManyMoreAsHoldWhatIsAskedFor) {
  const SoftmaxLayer layer = crowded_layer();
  const auto head = RowClusters::build(layer, {.clusters = 100});
  const Eigen::VectorXf h = random_vector(kDim, 8);
  const TopK answer = head->query(h, {.k = 60, .effort = 1});
  EXPECT_EQ(answer.size(), 60U);
  EXPECT_FALSE(answer.work.fell_back);
  EXPECT_LT(answer.work.candidates, 300U);
  EXPECT_EQ(head->query(h, {.k = 500, .effort = 1}).normalizer, Normalizer::exact);
}

TEST(RowClusters, TakeGivenClustersAsTheyAre) {
  const SoftmaxLayer layer = crowded_layer();
  const auto lists = shuffled_lists(20);
  const RowMajorMatrix centroids = random_matrix(20, kDim, 9);
  const std::vector<TokenId> tokens = joined(lists);
  const auto in_order = RowClusters::from_centroids(layer, centroids, tokens, {.visited = 4});
  const auto of_lists = RowClusters::from_centroids(layer, centroids, lists, {.visited = 4});
  for (unsigned i = 0; i < 20; ++i) {
    const Eigen::VectorXf h = random_vector(kDim, 10 + i);
    const auto expected = best_of(layer, centroids.cast<double>(), lists, h, 4);
    EXPECT_EQ(candidates_of(*in_order, h), expected);
    EXPECT_EQ(candidates_of(*of_lists, h), expected);
  }

  std::vector<std::vector<TokenId>> unequal = lists;
  unequal[0].insert(unequal[0].end(), unequal[1].begin() + 1, unequal[1].end());
  unequal[1].resize(1);
  const auto head = RowClusters::from_centroids(layer, centroids, unequal, {.visited = 4});
  const Eigen::VectorXf h = random_vector(kDim, 77);
  EXPECT_EQ(candidates_of(*head, h), best_of(layer, centroids.cast<double>(), unequal, h, 4));
}

TEST(RowClusters, EqualScoresGoToTheLowerClusters) {
  const SoftmaxLayer layer = SoftmaxLayer::own(random_matrix(kVocab, kDim, 1));
  const auto lists = shuffled_lists(20);
  const auto head = RowClusters::from_centroids(layer, RowMajorMatrix::Ones(20, kDim), lists, {.visited = 2});
  std::vector<TokenId> expected = lists[0];
  expected.insert(expected.end(), lists[1].begin(), lists[1].end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(candidates_of(*head, random_vector(kDim, 3)), expected);
}

TEST(RowClusters, AreTheSameOnEveryExecutor) {
  const SoftmaxLayer layer = crowded_layer();
  const RowMajorMatrix contexts = clustered_contexts(400, kDim, 6, 2);
  const RowClustersOptions options = {.clusters = 30, .balance = 1.0};  // rows must wait for room
  const std::string serial = testing::saved(*RowClusters::build(layer, contexts, options, SerialExecutor()));
  EXPECT_EQ(serial,
            testing::saved(*RowClusters::build(layer, contexts, options, testing::ReversedExecutor())));
  EXPECT_EQ(serial, testing::saved(*RowClusters::build(layer, contexts, options, ThreadPool(4))));
  RowClustersOptions other = options;
  other.seed = 2;
  EXPECT_NE(serial, testing::saved(*RowClusters::build(layer, contexts, other)));
}

TEST(RowClusters, LearnTheMassOutside) {
  const SoftmaxLayer layer = crowded_layer();
  const RowMajorMatrix contexts = clustered_contexts(600, kDim, 6, 2);
  const auto head = RowClusters::build(layer, contexts, {.clusters = 20, .visited = 5});
  const TopK answer = head->query(contexts.row(3), {.k = 5});
  EXPECT_EQ(answer.normalizer, Normalizer::learned);
  EXPECT_TRUE(head->log_z_error().has_value());
  EXPECT_NEAR(answer.log_z, Reference(layer, Eigen::VectorXf(contexts.row(3))).log_z, 0.7);
  EXPECT_EQ(head->query(contexts.row(3), {.k = 5, .effort = 4}).normalizer, Normalizer::candidates);
  const auto given = RowClusters::from_centroids(layer, random_matrix(20, kDim, 9), shuffled_lists(20),
                                                 {.visited = 5}, Contexts::of(contexts));
  EXPECT_EQ(given->query(contexts.row(3), {.k = 5}).normalizer, Normalizer::learned);
}

TEST(RowClusters, AreSavedAndLoaded) {
  const testing::TemporaryFolder folder(testing::memory_folder());
  const auto path = folder.path() / "f";
  const RowMajorMatrix contexts = clustered_contexts(400, kDim, 6, 2);
  for (const SoftmaxLayer& layer : {crowded_layer(), SoftmaxLayer::own(random_matrix(kVocab, kDim, 1))}) {
    const auto head = RowClusters::build(layer, contexts, {.clusters = 20, .visited = 3});
    save_index(*head, path);
    const auto loaded = load_index<RowClusters>(path, layer);
    EXPECT_EQ(loaded->index_bytes(), head->index_bytes());
    testing::expect_same_answers(*head, *loaded, random_matrix(20, kDim, 5));
  }
}

TEST(RowClusters, ChooseWhatIsLeftOpen) {
  const auto head = RowClusters::build(random_layer(4200, 4, 1), {.iterations = 1});
  EXPECT_LE(head->screener().clusters(), 33U);
  EXPECT_EQ(head->screener().visited(), 4U);
  EXPECT_EQ(RowClusters::build(random_layer(5, 4, 1))->screener().clusters(), 1U);
}

TEST(RowClusters, RefuseUnusableOptions) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const auto refusal = [&](const RowClustersOptions& options) {
    return error_of([&] { RowClusters::build(layer, options); });
  };
  EXPECT_EQ(refusal({.clusters = 0}), "row-clusters: clusters is 0; it must be at least 1");
  EXPECT_EQ(refusal({.visited = 0}), "row-clusters: visited is 0; it must be at least 1");
  EXPECT_EQ(refusal({.balance = 0.5}), "row-clusters: balance is 0.5; it must be at least 1");
  EXPECT_EQ(refusal({.balance = std::nan("")}), "row-clusters: balance is NaN; it must be at least 1");
}

TEST(RowClusters, RefuseClustersThatAreNone) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const RowMajorMatrix centroids = random_matrix(20, kDim, 9);
  const auto refusal = [&](const RowMajorMatrix& given, const std::vector<std::vector<TokenId>>& lists) {
    return error_of([&] { RowClusters::from_centroids(layer, given, lists); });
  };
  auto lists = shuffled_lists(20);
  EXPECT_EQ(refusal(centroids, lists), "");
  EXPECT_EQ(refusal(centroids.leftCols(7), lists),
            "row-clusters: centroids have 7 values, the layer's dimension is 24");
  EXPECT_EQ(refusal(centroids.topRows(19), lists),
            "row-clusters: there are 19 centroids and 20 lists of tokens; they must be as many");
  EXPECT_EQ(refusal(centroids.topRows(0), {}), "row-clusters: there are no clusters; at least 1 is needed");
  RowMajorMatrix damaged = centroids;
  damaged(3, 2) = std::nanf("");
  EXPECT_EQ(refusal(damaged, lists),
            "row-clusters: the centroid of cluster 3 has a value that is not finite");

  std::swap(lists[4].back(), lists[4].front());
  const TokenId kept = lists[4].back();
  lists[4].pop_back();
  EXPECT_EQ(refusal(centroids, lists),
            "row-clusters: token " + std::to_string(kept) + " is in no cluster; it must be in one");
  lists[4].push_back(lists[6][1]);
  EXPECT_EQ(refusal(centroids, lists), "row-clusters: token " + std::to_string(lists[6][1]) +
                                           " is in cluster 4 and in cluster 6; it must be in one");
  lists[4].back() = -1;
  EXPECT_EQ(refusal(centroids, lists),
            "row-clusters: cluster 4 has token -1; ids must be at least 0 and below V = 500");
  lists[4].back() = 500;
  EXPECT_EQ(refusal(centroids, lists),
            "row-clusters: cluster 4 has token 500; ids must be at least 0 and below V = 500");
  lists[4].clear();
  EXPECT_EQ(refusal(centroids, lists), "row-clusters: cluster 4 has no tokens; at least 1 is needed");

  const std::vector<TokenId> tokens(490);
  EXPECT_EQ(error_of([&] { RowClusters::from_centroids(layer, centroids, tokens); }),
            "row-clusters: 490 tokens make no 20 clusters of one size; give a list for each");
  EXPECT_EQ(
      error_of([&] { RowClusters::from_centroids(layer, centroids, shuffled_lists(20), {.visited = 0}); }),
      "row-clusters: visited is 0; it must be at least 1");
  EXPECT_NE(error_of([&] {
              RowClusters::build(layer, random_matrix(30, kDim + 1, 1));
            }).find("contexts have 25 values"),
            std::string::npos);
}

}  // namespace
}  // namespace topksoftmax
