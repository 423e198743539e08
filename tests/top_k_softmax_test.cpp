// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/top_k_softmax.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/layers.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"
#include "topksoftmax/query_options.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;

constexpr Eigen::Index kDim = 7;
constexpr Eigen::Index kBatch = 5;
constexpr QueryOptions kOptions = {.k = 4};

void expect_same(const TopK& a, const TopK& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.logits, b.logits);
  EXPECT_EQ(a.log_z, b.log_z);
}

/// Contexts however they lie in memory are answered as a copy of them is.
class ContextsOfAnyForm : public ::testing::Test {
 protected:
  void expect_answers(const std::vector<TopK>& answers) const {
    ASSERT_EQ(answers.size(), static_cast<std::size_t>(kBatch));
    for (Eigen::Index i = 0; i < kBatch; ++i) {
      const Eigen::VectorXf h = H_.row(i);
      expect_same(answers[static_cast<std::size_t>(i)], head_->query(h, kOptions));
    }
  }

  const RowMajorMatrix H_ = random_matrix(kBatch, kDim, 3);
  const std::unique_ptr<Fused> head_ = Fused::make(random_layer(100, kDim, 1));
};

TEST_F(ContextsOfAnyForm, OneByOne) {
  const RowMajorMatrix columns = H_.transpose();
  std::vector<TopK> strided;
  std::vector<TopK> computed;
  for (Eigen::Index i = 0; i < kBatch; ++i) {
    strided.push_back(head_->query(columns.col(i), kOptions));
    computed.push_back(head_->query(H_.row(i).transpose() * 1.0F, kOptions));
  }
  expect_answers(strided);
  expect_answers(computed);
}

TEST_F(ContextsOfAnyForm, Together) {
  const Eigen::MatrixXf columns = H_;
  expect_answers(head_->query_batch(H_, kOptions));
  expect_answers(head_->query_batch(columns, kOptions));
  expect_answers(head_->query_batch(H_ * 1.0F, kOptions));

  RowMajorMatrix wide = RowMajorMatrix::Zero(kBatch, 2 * kDim);
  Eigen::Map<RowMajorMatrix, 0, Eigen::Stride<Eigen::Dynamic, 2>> every_second(
      wide.data(), kBatch, kDim, Eigen::Stride<Eigen::Dynamic, 2>(2 * kDim, 2));
  every_second = H_;
  expect_answers(head_->query_batch(every_second, kOptions));

  std::vector<Workspace> workspaces(2);
  std::vector<TopK> answers(static_cast<std::size_t>(kBatch));
  head_->query_batch(every_second, kOptions, workspaces, answers);
  expect_answers(answers);
}

TEST_F(ContextsOfAnyForm, InPlainMemory) {
  constexpr Eigen::Index stride = kDim + 3;
  RowMajorMatrix wide = random_matrix(kBatch, stride, 4);
  wide.leftCols(kDim) = H_;
  expect_answers(head_->query_batch(wide.data(), kBatch, kDim, stride, kOptions));
  expect_answers(head_->query_batch(wide.leftCols(kDim), kOptions));
}

TEST_F(ContextsOfAnyForm, ForLogits) {
  Workspace workspace;
  const auto values = [](std::span<const float> all) { return std::vector<float>(all.begin(), all.end()); };
  const auto expected = values(head_->logits_batch(H_, {}, workspace));
  const Eigen::MatrixXf columns = H_;
  EXPECT_EQ(values(head_->logits_batch(columns, {}, workspace)), expected);
  const RowMajorMatrix transposed = H_.transpose();
  EXPECT_EQ(values(head_->logits(transposed.col(0), {}, workspace)),
            std::vector<float>(expected.begin(), expected.begin() + 100));
}

/// Counts what it is told of questions that will not come.
class Told final : public TopKSoftmax {
 public:
  explicit Told(SoftmaxLayer layer) : TopKSoftmax(std::move(layer)) {}
  std::string_view name() const override { return "told"; }
  std::size_t index_bytes() const override { return 0; }
  std::size_t refused() const { return refused_; }

 private:
  void do_query(const Query& /*query*/, Workspace& /*workspace*/, TopK& /*answer*/) const override {}
  void do_refuse() const override { ++refused_; }

  mutable std::size_t refused_ = 0;
};

// Heads that answer together with others would wait for each other otherwise.
TEST(LogitsBatch, AreRefusedWhereMemoryRunsOut) {
  if (!testing::can_fail_allocations()) GTEST_SKIP() << "allocations cannot fail here";
  const Told head(random_layer(100, kDim, 1));
  const RowMajorMatrix H = random_matrix(2, kDim, 3);
  std::size_t failures = 0;
  for (bool fails = true; fails; failures += fails ? 1 : 0) {
    Workspace workspace;
    const testing::FailingAllocation failing(failures + 1);
    try {
      head.logits_batch(H, {}, workspace);
      fails = false;
    } catch (const std::bad_alloc&) {
    }
  }
  EXPECT_GE(failures, 2U);
  EXPECT_EQ(head.refused(), failures);
}

// Of a mask that allows an eighth of the tokens or fewer, their rows alone are read.
TEST(LogitsBatch, AreTheSameHoweverFewTokensAreAllowed) {
  constexpr std::size_t vocab = 1000;
  const SoftmaxLayer layer = random_layer(vocab, kDim, 1).with({.scale = 1.5F, .soft_cap = 5.0F});
  const RowMajorMatrix H = random_matrix(kBatch, kDim, 3);
  std::vector<TokenId> rows(vocab);
  for (std::size_t row = 0; row < vocab; ++row) rows[row] = static_cast<TokenId>(3 * row + 1);
  const std::vector<TokenBias> biases = {{4, 2.0F}, {10, -3.0F}, {31, 1.0F}};
  for (const bool mapped : {false, true}) {
    std::unique_ptr<TopKSoftmax> head = Fused::make(layer);
    if (mapped) head = MappedVocabulary::wrap(std::move(head), rows, 3 * vocab + 5);
    Workspace workspace;
    const std::span<const float> scanned = head->logits_batch(H, {.logit_bias = biases}, workspace);
    const std::vector<float> all(scanned.begin(), scanned.end());
    for (const std::size_t count : {1U, 5U, 125U, 126U, 500U}) {
      TokenMask mask(head->vocab());
      for (std::size_t i = 0; i < count; ++i) mask.allow(mapped ? rows[2 * i] : static_cast<TokenId>(2 * i));
      const QueryOptions options = {.allowed = mask, .logit_bias = biases};
      const std::span<const float> some = head->logits_batch(H, options, workspace);
      ASSERT_EQ(some.size(), all.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        const bool allowed = mask.allows(static_cast<TokenId>(i % head->vocab()));
        ASSERT_EQ(some[i], allowed ? all[i] : -std::numeric_limits<float>::infinity()) << count << " " << i;
      }
    }
  }
}

TEST(LogitsOf, AreThoseOfAllTokens) {
  const auto head = Fused::make(random_layer(100, kDim, 1));
  const RowMajorMatrix H = random_matrix(1, kDim, 3);
  const std::span<const float> h(H.data(), kDim);
  const std::vector<TokenId> ids = {99, 3, 0, 3, 42};
  const TokenBias bias[] = {{3, 2.0F}, {50, -1.0F}, {99, 0.5F}};
  TokenMask mask = TokenMask::all(100);
  mask.forbid(42);
  mask.forbid(99);
  Workspace workspace;
  std::vector<float> logits(ids.size());
  for (const QueryOptions& options : {QueryOptions{}, QueryOptions{.logit_bias = bias},
                                      QueryOptions{.allowed = mask, .logit_bias = bias}}) {
    const std::span<const float> all = head->logits(H.row(0).transpose(), options, workspace);
    std::vector<float> expected;
    for (const TokenId id : ids) expected.push_back(all[static_cast<std::size_t>(id)]);
    head->logits_of(h, ids, options, workspace, logits);
    EXPECT_EQ(logits, expected);
  }
}

TEST(LogitsOf, RefusesWhatCannotBeScored) {
  const auto head = Fused::make(random_layer(100, kDim, 1));
  const RowMajorMatrix H = random_matrix(1, kDim, 3);
  const std::span<const float> h(H.data(), kDim);
  Workspace workspace;
  std::vector<float> logits(2);
  for (const std::vector<TokenId>& ids : {std::vector<TokenId>{1, 100}, {-1, 1}, {1}, {1, 2, 3}}) {
    EXPECT_THROW(head->logits_of(h, ids, {}, workspace, logits), std::invalid_argument);
  }
  const std::vector<TokenId> ids = {1, 2};
  EXPECT_THROW(head->logits_of(h.first(kDim - 1), ids, {}, workspace, logits), std::invalid_argument);
  EXPECT_THROW(head->logits_of(h, ids, {.log_z_tolerance = -1.0}, workspace, logits), std::invalid_argument);
  head->logits_of(h, {}, {}, workspace, {});
}

}  // namespace
}  // namespace topksoftmax
