// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/flat_answers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;

constexpr std::size_t kBatch = 600;
constexpr std::size_t kDim = 12;

class FlatAnswersTest : public ::testing::Test {
 protected:
  void ask(const QueryOptions& options, std::size_t k) {
    ids_.assign(kBatch * k, -7);
    logits_.assign(kBatch * k, -7.0F);
    log_z_.assign(kBatch, -7.0);
    certified_.assign(kBatch, 7);
    head_->query_batch(contexts_.data(), kBatch, kDim, kDim, options, workspaces_,
                       FlatAnswers{ids_.data(), logits_.data(), log_z_.data(), certified_.data()}, pool_);
  }

  std::unique_ptr<Fused> head_ = Fused::make(random_layer(20, static_cast<Eigen::Index>(kDim), 1));
  RowMajorMatrix contexts_ =
      random_matrix(static_cast<Eigen::Index>(kBatch), static_cast<Eigen::Index>(kDim), 2);
  ThreadPool pool_{3};
  std::vector<Workspace> workspaces_{3};
  std::vector<TokenId> ids_;
  std::vector<float> logits_;
  std::vector<double> log_z_;
  std::vector<std::uint8_t> certified_;
};

TEST_F(FlatAnswersTest, AreThoseOfABatch) {
  ask({.k = 3}, 3);
  const std::vector<TopK> expected = head_->query_batch(contexts_, {.k = 3});
  for (std::size_t q = 0; q < kBatch; ++q) {
    EXPECT_EQ(
        std::vector(ids_.begin() + static_cast<long>(3 * q), ids_.begin() + static_cast<long>(3 * q + 3)),
        expected[q].ids);
    EXPECT_EQ(logits_[3 * q + 2], expected[q].logits[2]);
    EXPECT_EQ(log_z_[q], expected[q].log_z);
    EXPECT_EQ(certified_[q], 1);
  }
}

TEST_F(FlatAnswersTest, FillPlacesThatHaveNoToken) {
  ask({.k = 25}, 25);
  EXPECT_GE(ids_[19], 0);
  for (std::size_t i = 20; i < 25; ++i) {
    EXPECT_EQ(ids_[i], -1);
    EXPECT_EQ(logits_[i], -std::numeric_limits<float>::infinity());
  }
}

TEST_F(FlatAnswersTest, MayBeWantedInPart) {
  ids_.assign(kBatch * 2, -7);
  head_->query_batch(contexts_.data(), kBatch, kDim, kDim, {.k = 2, .probabilities = false}, workspaces_,
                     FlatAnswers{.ids = ids_.data()});
  EXPECT_EQ(ids_[0], head_->query(contexts_.row(0).transpose(), {.k = 1}).ids[0]);
  ask({.k = 2, .probabilities = false}, 2);
  EXPECT_TRUE(std::isnan(log_z_[5]));
}

TEST_F(FlatAnswersTest, StayAsTheyWereWhereTheBatchIsRefused) {
  contexts_(static_cast<Eigen::Index>(kBatch) - 1, 3) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(ask({.k = 2}, 2), std::invalid_argument);
  EXPECT_EQ(ids_, std::vector<TokenId>(kBatch * 2, -7));
  EXPECT_EQ(log_z_, std::vector<double>(kBatch, -7.0));
}

}  // namespace
}  // namespace topksoftmax
