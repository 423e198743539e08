// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/wta/wta_lsh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/same_answers.hpp"
#include "support/wta_reference.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"
#include "topksoftmax/wta/build.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::error_of;
using ::testing::HasSubstr;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;

constexpr Eigen::Index kVocab = 300;
constexpr Eigen::Index kDim = 20;
const WtaHashOptions kHash = {.K = 4, .units_per_band = 2, .bands = 70};

class WtaLshTest : public ::testing::Test {
 protected:
  static Query query_of(const float* h, std::size_t k = 1) {
    Query query;
    query.h = h;
    query.k = k;
    return query;
  }

  /// The tokens that hash alone finds, and the first `frequent` of them all.
  std::set<TokenId> expected(const Eigen::VectorXf& h, std::size_t threshold,
                             std::size_t frequent = 0) const {
    const auto hits = reference_.hits(layer_, h);
    std::set<TokenId> tokens;
    for (std::size_t token = 0; token < hits.size(); ++token) {
      if (hits[token] >= threshold || token < frequent) tokens.insert(static_cast<TokenId>(token));
    }
    return tokens;
  }

  static std::set<TokenId> set_of(const Candidates& candidates) {
    EXPECT_TRUE(std::is_sorted(candidates.ids.begin(), candidates.ids.end()));
    const std::set<TokenId> tokens(candidates.ids.begin(), candidates.ids.end());
    EXPECT_EQ(tokens.size(), candidates.ids.size()) << "each once";
    return tokens;
  }

  static std::vector<std::int64_t> falling_counts() {
    std::vector<std::int64_t> counts;
    for (Eigen::Index token = 0; token < kVocab; ++token) counts.push_back(1000 - token);
    return counts;
  }

  std::unique_ptr<WtaLsh> build(std::size_t threshold, std::size_t top_frequent) const {
    return WtaLsh::build(
        layer_,
        {.hash = kHash, .threshold = threshold, .top_frequent = top_frequent, .counts = falling_counts()});
  }

  SoftmaxLayer layer_ = random_layer(kVocab, kDim, 5);
  testing::WtaReference reference_{kDim, kHash};
  RowMajorMatrix H_ = clustered_contexts(40, kDim, 3, 6);
  Workspace workspace_;
};

TEST_F(WtaLshTest, CandidatesAreHitOftenEnoughOrFrequent) {
  for (const std::size_t threshold : {1U, 5U, 8U, 12U, 70U}) {
    for (const std::size_t frequent : {0U, 25U}) {
      const auto head = build(threshold, frequent);
      for (Eigen::Index i = 0; i < 5; ++i) {
        const Eigen::VectorXf h = H_.row(i);
        const Candidates found = head->screener().screen(query_of(h.data()), workspace_);
        EXPECT_EQ(set_of(found), expected(h, threshold, frequent)) << "t = " << threshold;
        const auto hits = reference_.hits(layer_, h);
        std::size_t total = 0;
        for (const std::size_t n : hits) total += n;
        EXPECT_EQ(found.screened, total);
        EXPECT_GT(found.bytes_read, total * sizeof(TokenId));
        EXPECT_EQ(found.normalizer, Normalizer::candidates);
      }
    }
  }
}

TEST_F(WtaLshTest, LongAndShortSpansAreCountedWhole) {
  // With few codes a band's spans hold hundreds of tokens, with many hardly one.
  for (const WtaHashOptions& hash : {WtaHashOptions{.K = 2, .units_per_band = 1, .bands = 9},
                                     WtaHashOptions{.K = 16, .units_per_band = 3, .bands = 200}}) {
    const auto head = WtaLsh::build(layer_, {.hash = hash, .threshold = 1, .top_frequent = 0});
    const testing::WtaReference reference(kDim, hash);
    const Eigen::VectorXf h = H_.row(2);
    const auto hits = reference.hits(layer_, h);
    for (std::size_t threshold = 1; threshold <= std::min<std::size_t>(hash.bands, 10); ++threshold) {
      Query query = query_of(h.data());
      query.effort = hash.bands + 1 - threshold;
      std::set<TokenId> wanted;
      for (std::size_t token = 0; token < hits.size(); ++token) {
        if (hits[token] >= threshold) wanted.insert(static_cast<TokenId>(token));
      }
      EXPECT_EQ(set_of(head->screener().screen(query, workspace_)), wanted);
    }
  }
}

TEST_F(WtaLshTest, EveryStoredTypeIsHashedAsItIsStored) {
  using Half = Eigen::Matrix<Eigen::half, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Half stored = random_matrix(kVocab, kDim, 9).cast<Eigen::half>();
  kernels::Rows rows;
  rows.data = stored.data();
  rows.count = kVocab;
  rows.dim = rows.stride = kDim;
  rows.type = WeightType::float16;
  const SoftmaxLayer layer = SoftmaxLayer::borrow(rows, 0);
  const auto half = WtaLsh::build(layer, {.hash = kHash, .top_frequent = 0});
  const auto full = WtaLsh::build(SoftmaxLayer::own(layer.weights()), {.hash = kHash, .top_frequent = 0});
  for (Eigen::Index i = 0; i < 5; ++i) {
    const Eigen::VectorXf h = H_.row(i);
    Workspace other;
    EXPECT_EQ(set_of(half->screener().screen(query_of(h.data()), workspace_)),
              set_of(full->screener().screen(query_of(h.data()), other)));
  }
}

TEST_F(WtaLshTest, ABatchSharesTheUnionOfItsContextsLists) {
  const auto head = build(8, 10);
  for (const std::size_t batch : {1U, 2U, 3U, 4U, 12U, 16U, 17U, 40U}) {
    std::set<TokenId> all;
    std::vector<std::size_t> sizes;
    for (std::size_t q = 0; q < batch; ++q) {
      const auto own = expected(H_.row(static_cast<Eigen::Index>(q)), 8, 10);
      all.insert(own.begin(), own.end());
      sizes.push_back(own.size());
    }
    const Query query = query_of(H_.data());
    const auto [candidates, own] = head->screener().screen_batch({query, kDim, batch}, workspace_);
    EXPECT_EQ(set_of(candidates), all) << "batch of " << batch;
    EXPECT_EQ(std::vector<std::size_t>(own.begin(), own.end()), sizes);
  }
}

TEST_F(WtaLshTest, ABatchAnswersFromTheUnionExactly) {
  const auto head = build(8, 10);
  const auto exact = Exact::make(layer_);
  std::set<TokenId> all;
  for (Eigen::Index q = 0; q < 17; ++q) all.merge(expected(H_.row(q), 8, 10));
  std::vector<Workspace> workspaces(1);
  std::vector<TopK> answers(17);
  head->query_batch(H_.topRows(17), {.k = 6}, workspaces, answers);
  for (Eigen::Index q = 0; q < 17; ++q) {
    const TopK& answer = answers[static_cast<std::size_t>(q)];
    const TopK truth = exact->query(H_.row(q), {.k = kVocab});
    std::vector<TokenId> ids;
    std::vector<float> logits;
    double sum = 0.0;
    for (std::size_t n = 0; n < truth.size(); ++n) {
      if (!all.contains(truth.ids[n])) continue;
      sum += std::exp(static_cast<double>(truth.logits[n]));
      if (ids.size() == 6) continue;
      ids.push_back(truth.ids[n]);
      logits.push_back(truth.logits[n]);
    }
    EXPECT_EQ(answer.ids, ids);
    EXPECT_EQ(answer.logits, logits) << "bit for bit";
    EXPECT_NEAR(answer.log_z, std::log(sum), 1e-5);
    EXPECT_EQ(answer.work.candidates, all.size());
    EXPECT_FALSE(answer.work.fell_back);
  }
}

TEST_F(WtaLshTest, ABatchIsAnsweredTheSameOnEveryNumberOfThreads) {
  const RowMajorMatrix H = clustered_contexts(150, kDim, 3, 6);
  const std::shared_ptr<const WtaLsh> head =
      WtaLsh::build(layer_, H, {.hash = kHash, .threshold = 12, .top_frequent = 10});
  std::vector<TokenId> names(kVocab);
  std::iota(names.begin(), names.end(), 7);
  const auto mapped = MappedVocabulary::wrap(head, names, kVocab + 7);
  for (const TopKSoftmax* const asked :
       {static_cast<const TopKSoftmax*>(head.get()), static_cast<const TopKSoftmax*>(mapped.get())}) {
    for (const Eigen::Index batch : {8, 64, 129, 150}) {
      const RowMajorMatrix contexts = H.topRows(batch);
      const std::vector<TopK> serial = asked->query_batch(contexts, {.k = 3}, SerialExecutor());
      for (const std::size_t threads : {2U, 8U}) {
        const std::vector<TopK> answers = asked->query_batch(contexts, {.k = 3}, ThreadPool(threads));
        ASSERT_EQ(answers.size(), serial.size());
        for (std::size_t q = 0; q < answers.size(); ++q) testing::expect_same(answers[q], serial[q]);
      }
    }
  }
}

TEST_F(WtaLshTest, AsManyContextsAsItSaysShareCandidates) {
  const auto head = build(8, 10);
  const RowMajorMatrix H = clustered_contexts(100, kDim, 3, 6);
  const std::vector<TopK> answers = head->query_batch(H, {.k = 6});
  std::set<TokenId> first;
  std::set<TokenId> others;
  constexpr Eigen::Index shared = WtaLsh::shared_by;
  for (Eigen::Index q = 0; q < H.rows(); ++q) (q < shared ? first : others).merge(expected(H.row(q), 8, 10));
  for (std::size_t q = 0; q < answers.size(); ++q)
    EXPECT_EQ(answers[q].work.candidates, (q < WtaLsh::shared_by ? first : others).size());
}

TEST_F(WtaLshTest, AContextWithoutEnoughOfItsOwnIsAnsweredAsItIsAlone) {
  const auto head = build(60, 0);  // hardly any token is hit so often …
  RowMajorMatrix H(3, kDim);
  const RowMajorMatrix W = layer_.weights();
  H.row(0) = W.row(7);
  H.row(1) = H_.row(0);
  H.row(2) = W.row(9);  // … but a row itself is, in every band
  std::vector<Workspace> workspaces(1);
  std::vector<TopK> answers(3);
  head->query_batch(H, {.k = 1}, workspaces, answers);
  for (Eigen::Index q = 0; q < 3; ++q) {
    const TopK alone = head->query(H.row(q), {.k = 1});
    EXPECT_EQ(answers[static_cast<std::size_t>(q)].work.fell_back, alone.work.fell_back);
    EXPECT_GE(answers[static_cast<std::size_t>(q)].logits[0], alone.logits[0]);
  }
  EXPECT_FALSE(answers[0].work.fell_back);
  EXPECT_TRUE(answers[1].work.fell_back);
}

TEST_F(WtaLshTest, EffortLowersTheThreshold) {
  const auto head = build(10, 5);
  const Eigen::VectorXf h = H_.row(1);
  for (const std::size_t threshold : {1U, 4U, 10U, 20U, 70U}) {
    Query query = query_of(h.data());
    query.effort = kHash.bands + 1 - threshold;
    const Candidates found = head->screener().screen(query, workspace_);
    EXPECT_EQ(set_of(found), expected(h, threshold, 5));
    EXPECT_FALSE(found.everything);
  }
  Query query = query_of(h.data());
  query.effort = kHash.bands + 1;
  EXPECT_TRUE(head->screener().screen(query, workspace_).everything);
}

TEST_F(WtaLshTest, ForbiddenTokensAreNoCandidates) {
  const auto head = build(6, 50);
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < kVocab; id += 3) mask.allow(id);
  const Eigen::VectorXf h = H_.row(4);
  Query query = query_of(h.data());
  query.edits.allowed = mask;
  const auto shared = head->screener().screen_batch(QueryBatch(query), workspace_);
  std::set<TokenId> wanted;
  for (const TokenId id : expected(h, 6, 50)) {
    if (mask.allows(id)) wanted.insert(id);
  }
  EXPECT_EQ(set_of(shared.candidates), wanted);
  EXPECT_EQ(shared.own[0], wanted.size());
}

TEST_F(WtaLshTest, TheMostFrequentTokensAreTold) {
  const Eigen::VectorXf h = H_.row(0);
  const auto frequent = [&](const SoftmaxLayer& layer, std::vector<std::int64_t> counts) {
    const WtaHashOptions hash = {.K = 2, .units_per_band = 20, .bands = 30};
    const auto head =
        WtaLsh::build(layer, {.hash = hash, .threshold = 30, .top_frequent = 3, .counts = std::move(counts)});
    return set_of(head->screener().screen(query_of(h.data()), workspace_));
  };
  RowMajorMatrix W = random_matrix(kVocab, kDim, 3, 0.1F);
  for (const Eigen::Index longest : {30, 8, 100}) W.row(longest) *= 100.0F;
  Eigen::VectorXf b = Eigen::VectorXf::Zero(kVocab);
  b[20] = b[21] = b[22] = b[23] = 2.0F;
  std::vector<std::int64_t> counts(kVocab, 0);
  counts[55] = 7;
  counts[299] = 9;
  EXPECT_EQ(frequent(SoftmaxLayer::borrow(W, b), counts), (std::set<TokenId>{0, 55, 299}));
  EXPECT_EQ(frequent(SoftmaxLayer::borrow(W, b), {}), (std::set<TokenId>{20, 21, 22})) << "ties: lower ids";
  EXPECT_EQ(frequent(SoftmaxLayer::borrow(W), {}), (std::set<TokenId>{8, 30, 100}));
}

TEST_F(WtaLshTest, ATenthOfTheVocabularyIsFrequentUnlessGiven) {
  const auto head = WtaLsh::build(layer_, {.hash = kHash, .threshold = 70, .counts = falling_counts()});
  const Eigen::VectorXf h = H_.row(0);
  EXPECT_EQ(head->screener().screen(query_of(h.data()), workspace_).ids.size(), 30U);
  EXPECT_TRUE(build(70, 5000)->screener().screen(query_of(h.data()), workspace_).everything);
}

TEST_F(WtaLshTest, BuildsAreTheSameForASeed) {
  const auto ids = [&](std::uint64_t seed) {
    WtaHashOptions hash = kHash;
    hash.seed = seed;
    const auto head = WtaLsh::build(layer_, {.hash = hash, .top_frequent = 0});
    const Eigen::VectorXf h = H_.row(3);
    return set_of(head->screener().screen(query_of(h.data()), workspace_));
  };
  EXPECT_EQ(ids(4), ids(4));
  EXPECT_NE(ids(4), ids(5));
}

TEST_F(WtaLshTest, WarmBatchesAllocateNothing) {
  const auto head = build(6, 10);
  std::vector<Workspace> workspaces(1);
  std::vector<TopK> answers(12);
  const auto ask = [&] {
    for (Eigen::Index first = 0; first + 12 <= H_.rows(); first += 12) {
      head->query_batch(H_.middleRows(first, 12), {.k = 4}, workspaces, answers);
    }
  };
  ask();
  const std::size_t before = testing::allocations();
  ask();
  EXPECT_EQ(testing::allocations(), before);
}

TEST_F(WtaLshTest, RefusesUnusableOptions) {
  const auto refuses = [&](const WtaLshOptions& options, const std::string& part) {
    EXPECT_THAT(error_of([&] { WtaLsh::build(layer_, options); }), HasSubstr(part));
  };
  refuses({.threshold = 0}, "threshold is 0");
  refuses({.threshold = 501}, "threshold is 501");
  refuses({.hash = {.K = 8, .units_per_band = 11}}, "must be below 31");
  refuses({.counts = {1, 2, 3}}, "there are 3 counts");
  std::vector<std::int64_t> counts(kVocab, 4);
  counts[12] = -1;
  refuses({.counts = counts}, "counts[12] is -1");
}

}  // namespace
}  // namespace topksoftmax
