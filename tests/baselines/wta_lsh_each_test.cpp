// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/baselines/wta_lsh_each.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/layers.hpp"
#include "support/screened.hpp"
#include "support/wta_reference.hpp"
#include "topksoftmax/baselines/build_wta_lsh_each.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::random_matrix;
using testing::screened;

constexpr Eigen::Index kVocab = 300;
constexpr Eigen::Index kDim = 20;
const WtaHashOptions kHash = {.K = 4, .units_per_band = 3, .bands = 40};

class WtaLshEachTest : public ::testing::Test {
 protected:
  std::vector<TokenId> screen(const WtaLshEach& head, const Eigen::VectorXf& h, std::size_t effort = 0,
                              const AllowedTokens& allowed = {}) {
    Query query;
    query.effort = effort;
    query.edits.allowed = allowed;
    return screened(head, h, query, workspace_);
  }

  /// The tokens hit most often, by sorting them all, in ascending order.
  std::vector<TokenId> expected(const Eigen::VectorXf& h, std::size_t wanted,
                                std::size_t only_every = 1) const {
    const auto hits = reference_.hits(layer_, h);
    const auto hits_of = [&](TokenId id) { return hits[static_cast<std::size_t>(id)]; };
    std::vector<TokenId> ids;
    for (std::size_t token = 0; token < hits.size(); token += only_every) {
      if (hits[token] > 0) ids.push_back(static_cast<TokenId>(token));
    }
    std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return hits_of(a) > hits_of(b); });
    ids.resize(std::min(wanted, ids.size()));
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  SoftmaxLayer layer_ = random_layer(kVocab, kDim, 5);
  testing::WtaReference reference_{kDim, kHash};
  RowMajorMatrix H_ = clustered_contexts(20, kDim, 3, 6);
  Workspace workspace_;
};

TEST_F(WtaLshEachTest, CandidatesAreTheTopCollisions) {
  for (const std::size_t wanted : {1U, 2U, 10U, 40U, 150U, 299U}) {
    const auto head = WtaLshEach::build(layer_, {.hash = kHash, .top_collisions = wanted});
    for (Eigen::Index i = 0; i < 8; ++i) EXPECT_EQ(screen(*head, H_.row(i)), expected(H_.row(i), wanted));
    const Eigen::VectorXf row = layer_.weights().row(123);  // hit in every band
    EXPECT_EQ(screen(*head, row), expected(row, wanted));
  }
}

TEST_F(WtaLshEachTest, EffortIsTheNumberOfThem) {
  const auto head = WtaLshEach::build(layer_, {.hash = kHash});
  EXPECT_EQ(screen(*head, H_.row(0)), expected(H_.row(0), 30)) << "a tenth of the vocabulary";
  for (const std::size_t effort : {1U, 77U, 299U}) {
    EXPECT_EQ(screen(*head, H_.row(0), effort), expected(H_.row(0), effort));
  }
  Query query;
  const Eigen::VectorXf h = H_.row(0);
  query.h = h.data();
  query.effort = kVocab;
  EXPECT_TRUE(head->screener().screen(query, workspace_).everything);
}

TEST_F(WtaLshEachTest, ForbiddenTokensTakeNoRoom) {
  const auto head = WtaLshEach::build(layer_, {.hash = kHash, .top_collisions = 20});
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < kVocab; id += 3) mask.allow(id);
  for (Eigen::Index i = 0; i < 8; ++i) {
    EXPECT_EQ(screen(*head, H_.row(i), 0, mask), expected(H_.row(i), 20, 3));
  }
}

TEST_F(WtaLshEachTest, ContextsOfABatchShareNothing) {
  const auto head = WtaLshEach::build(layer_, {.hash = kHash, .top_collisions = 20});
  const std::vector<TopK> answers = head->query_batch(H_, {.k = 4});
  for (Eigen::Index q = 0; q < H_.rows(); ++q) {
    const TopK alone = head->query(H_.row(q), {.k = 4});
    EXPECT_EQ(answers[static_cast<std::size_t>(q)].ids, alone.ids);
    EXPECT_EQ(answers[static_cast<std::size_t>(q)].log_z, alone.log_z);
    EXPECT_EQ(answers[static_cast<std::size_t>(q)].work.candidates, 20U);
  }
}

TEST_F(WtaLshEachTest, RefusesUnusableOptions) {
  EXPECT_THROW(WtaLshEach::build(layer_, {.top_collisions = 0}), Error);
  EXPECT_THROW(WtaLshEach::build(layer_, {.hash = {.K = 1}}), Error);
  EXPECT_THROW(WtaLshEach::build(layer_, random_matrix(5, H_.cols() + 1, 1)), Error);
}

}  // namespace
}  // namespace topksoftmax
