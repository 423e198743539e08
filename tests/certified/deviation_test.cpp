// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/deviation.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/saved_index.hpp"
#include "support/spans.hpp"
#include "support/statistics.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::Reference;
using testing::span_of;

constexpr std::size_t kVocab = 2003;
constexpr std::size_t kDim = 48;

struct World {
  SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);

  std::unique_ptr<Certified> head(const LogitTransform& transform = {}) const {
    return Certified::build(layer.with(transform), contexts, {.width = 16});
  }
};

double deviation_of(const std::vector<double>& logits) {
  return std::sqrt(testing::LogitMoments(logits).variance);
}

void expect_within(const std::optional<LogitDeviation>& found, double exact) {
  ASSERT_TRUE(found);
  EXPECT_LE(found->low, exact);
  EXPECT_GE(found->high, exact);
  EXPECT_LE(found->high - found->low, 2e-3 * exact);
}

TEST(LogitDeviation, IsThatOfAllLogitsWithinItsBounds) {
  const World world;
  for (const LogitTransform& transform : {LogitTransform{}, LogitTransform{.scale = 0.25F}}) {
    const auto head = world.head(transform);
    Workspace workspace;
    for (Eigen::Index q = 0; q < 40; ++q) {
      const Eigen::VectorXf h = world.contexts.row(q);
      expect_within(head->logit_deviation(span_of(h), {}, workspace),
                    deviation_of(Reference(head->layer(), h).logits));
    }
  }
}

TEST(LogitDeviation, IsThatOfAllowedTokensWithTheirBiases) {
  const World world;
  const auto head = world.head();
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < static_cast<TokenId>(kVocab); ++id) {
    if (id % 25 != 3) mask.allow(id);
  }
  std::vector<TokenBias> biases = {{0, -60.0F}, {3, 500.0F}};  // 3 is forbidden
  for (TokenId id = 100; id < 140; ++id) biases.push_back({id, 40.0F});
  Workspace workspace;
  for (Eigen::Index q = 0; q < 40; ++q) {
    const Eigen::VectorXf h = world.contexts.row(q);
    const Reference all(world.layer, h);
    const auto masked = all.edited([](TokenId id) { return id % 25 != 3; }, {});
    const auto biased = all.edited([](TokenId) { return true; }, biases);
    const auto both = all.edited([](TokenId id) { return id % 25 != 3; }, biases);
    expect_within(head->logit_deviation(span_of(h), {.allowed = mask}, workspace),
                  deviation_of(masked.logits));
    expect_within(head->logit_deviation(span_of(h), {.logit_bias = biases}, workspace),
                  deviation_of(biased.logits));
    expect_within(head->logit_deviation(span_of(h), {.allowed = mask, .logit_bias = biases}, workspace),
                  deviation_of(both.logits));
  }
}

TEST(LogitDeviation, OfAMappedVocabularyIsThatOfTheTokensWithRows) {
  const World world;
  std::vector<TokenId> token_of_row(kVocab);
  for (std::size_t row = 0; row < kVocab; ++row) token_of_row[row] = static_cast<TokenId>(2 * row);
  for (const std::size_t row : {5U, 77U}) token_of_row[row] = RowMap::none;
  const auto head = MappedVocabulary::wrap(world.head(), token_of_row, 2 * kVocab);
  const Eigen::VectorXf h = world.contexts.row(0);
  const auto with_tokens =
      Reference(world.layer, h).edited([](TokenId row) { return row != 5 && row != 77; }, {});
  Workspace workspace;
  expect_within(head->logit_deviation(span_of(h), {}, workspace), deviation_of(with_tokens.logits));
}

TEST(LogitDeviation, IsKnownToWhatCertifiesAndIsSaved) {
  const World world;
  const Eigen::VectorXf h = world.contexts.row(0);
  const double exact = deviation_of(Reference(world.layer, h).logits);
  Workspace workspace;
  const auto repaired =
      Certify::wrap(std::make_shared<const Fused>(world.layer), world.contexts, {.width = 16});
  expect_within(repaired->logit_deviation(span_of(h), {}, workspace), exact);
  const testing::TemporaryFolder folder(testing::memory_folder());
  const auto path = folder.write("index", testing::saved(*world.head()));
  expect_within(load_index<Certified>(path, world.layer)->logit_deviation(span_of(h), {}, workspace), exact);
}

TEST(LogitDeviation, IsUnknownWhereItWouldTakeAScan) {
  const World world;
  const Eigen::VectorXf h = world.contexts.row(0);
  Workspace workspace;
  EXPECT_FALSE(Fused(world.layer).logit_deviation(span_of(h), {}, workspace));
  EXPECT_FALSE(world.head({.soft_cap = 9.0F})->logit_deviation(span_of(h), {}, workspace));
  TokenMask few(kVocab);
  few.allow(5);
  EXPECT_FALSE(world.head()->logit_deviation(span_of(h), {.allowed = few}, workspace));
  const RowMajorMatrix W = testing::random_matrix(60, kDim, 1);  // its rows are less than its covariance
  EXPECT_FALSE(Certified::build(SoftmaxLayer::borrow(W))->logit_deviation(span_of(h), {}, workspace));
}

// A scan makes them the largest float.
TEST(LogitDeviation, IsUnknownWhereLogitsLeaveFloatsRange) {
  RowMajorMatrix W = RowMajorMatrix::Constant(256, 1, 1e30F);
  for (Eigen::Index i = 0; i < W.rows(); i += 2) W(i, 0) = -1e30F;
  Workspace workspace;
  const auto head = Certified::build(SoftmaxLayer::borrow(W));
  const std::vector<float> long_one = {1e10F};
  const std::vector<float> short_one = {1e5F};
  EXPECT_FALSE(head->logit_deviation(long_one, {}, workspace));
  expect_within(head->logit_deviation(short_one, {}, workspace), 1e35);
  const auto scaled = Certified::build(SoftmaxLayer::borrow(W).with({.scale = 1e9F}));
  EXPECT_FALSE(scaled->logit_deviation(short_one, {}, workspace));
}

TEST(LogitDeviation, OfEqualLogitsIsZero) {
  const RowMajorMatrix W = RowMajorMatrix::Constant(400, 8, 0.5F);
  const auto head = Certified::build(SoftmaxLayer::borrow(W));
  const Eigen::VectorXf h = Eigen::VectorXf::Constant(8, 0.5F);
  Workspace workspace;
  const auto found = head->logit_deviation(span_of(h), {}, workspace);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->low, 0.0);
  EXPECT_LE(found->high, 0.02);
}

TEST(LogitDeviation, RefusesWhatAQueryRefuses) {
  const World world;
  const auto head = world.head();
  Workspace workspace;
  const Eigen::VectorXf h = world.contexts.row(0);
  EXPECT_THROW(static_cast<void>(head->logit_deviation(span_of(h).first(3), {}, workspace)),
               std::invalid_argument);
  const TokenMask none(kVocab);
  EXPECT_THROW(static_cast<void>(head->logit_deviation(span_of(h), {.allowed = none}, workspace)),
               std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
