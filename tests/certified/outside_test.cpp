// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/outside.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/numeric/quantile.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::Reference;

constexpr Eigen::Index kTrain = 3000;

struct Learned {
  explicit Learned(BoundBoxes boxes)
      : head(Certified::build(layer, contexts.topRows(kTrain), {.prefix = 8, .width = 16, .boxes = boxes})) {}

  double error(Eigen::Index row, const QueryOptions& options) const {
    const Eigen::VectorXf h = contexts.row(row);
    const auto allows = [&options](TokenId id) { return options.allowed.allows(id); };
    return std::abs(head->query(h, options).log_z - Reference(layer, h).edited(allows, {}).log_z);
  }

  /// A mask that forbids the best tokens of so many contexts.
  TokenMask without_best(Eigen::Index count) const {
    TokenMask mask = TokenMask::all(1500);
    for (Eigen::Index row = 0; row < count; ++row) mask.forbid(head->query(contexts.row(row)).ids[0]);
    return mask;
  }

  /// Errors of log Z on contexts that it was not built from, ascending.
  std::vector<double> errors(const QueryOptions& options) const {
    std::vector<double> all;
    for (Eigen::Index row = kTrain; row < contexts.rows(); ++row) all.push_back(error(row, options));
    std::sort(all.begin(), all.end());
    return all;
  }

  SoftmaxLayer layer = random_layer(1500, 32, 3);
  RowMajorMatrix contexts = clustered_contexts(kTrain + 400, 32, 6, 9);
  std::unique_ptr<Certified> head;
};

class OutsideOfTheBounds : public ::testing::TestWithParam<BoundBoxes> {};

TEST_P(OutsideOfTheBounds, IsLearned) {
  const Learned world(GetParam());
  const std::optional<LogZError> known = world.head->log_z_error();
  ASSERT_TRUE(known);
  EXPECT_LT(known->median, known->p99);
  const std::vector<double> errors = world.errors({.k = 5});
  // A mask that forbids so many that what is outside of it was never learned.
  TokenMask many = TokenMask::all(1500);
  for (TokenId id = 0; id < 60; ++id) many.forbid(id);
  const std::vector<double> by_position = world.errors({.k = 5, .allowed = many});
  const std::size_t middle = errors.size() / 2;
  EXPECT_LT(errors[middle], by_position[middle]);
  EXPECT_LT(errors[middle], 2.0 * known->median);
  EXPECT_GT(errors[middle], 0.5 * known->median);
  for (const std::size_t k : {1U, 2U, 14U, 50U}) {
    EXPECT_LT(world.errors({.k = k})[middle], world.errors({.k = k, .allowed = many})[middle]) << k;
  }
}

TEST_P(OutsideOfTheBounds, IsAsGoodWhereFewTokensAreForbidden) {
  const Learned world(GetParam());
  const LogZError known = *world.head->log_z_error();
  for (const Eigen::Index count : {0, 1, 12}) {
    const TokenMask mask = world.without_best(count);
    const std::vector<double> errors = world.errors({.k = 5, .allowed = mask});
    // The best tokens of most contexts weigh much: without them the others' mass counts for more.
    const double growth = count == 12 ? 5.0 : 2.0;
    EXPECT_LT(errors[errors.size() / 2], growth * known.median) << count;
    EXPECT_LT(errors[errors.size() * 99 / 100], growth * known.p99) << count;
  }
}

TEST_P(OutsideOfTheBounds, IsEstimatedWithinThem) {
  const Learned world(GetParam());
  for (const float sharpness : {0.01F, 1.0F, 30.0F}) {
    for (Eigen::Index row = 0; row < 100; ++row) {
      const Eigen::VectorXf h = sharpness * world.contexts.row(row).transpose();
      const TopK answer = world.head->query(h, {.k = 5});
      ASSERT_LE(answer.log_z_low, answer.log_z);
      ASSERT_GE(answer.log_z_high, answer.log_z);
    }
  }
}

TEST_P(OutsideOfTheBounds, IsSaved) {
  const Learned world(GetParam());
  const testing::TemporaryFolder folder;
  save_index(*world.head, folder.path() / "index");
  const auto loaded = load_index<Certified>(folder.path() / "index", world.layer);
  ASSERT_TRUE(loaded->log_z_error());
  EXPECT_EQ(loaded->log_z_error()->median, world.head->log_z_error()->median);
  EXPECT_EQ(loaded->index_bytes(), world.head->index_bytes());
  for (Eigen::Index row = 0; row < 50; ++row) {
    const Eigen::VectorXf h = world.contexts.row(row);
    EXPECT_EQ(loaded->query(h, {.k = 5}).log_z, world.head->query(h, {.k = 5}).log_z);
  }
}

INSTANTIATE_TEST_SUITE_P(Boxes, OutsideOfTheBounds, ::testing::Values(BoundBoxes::never, BoundBoxes::always));

TEST(OutsideOfTheBoundsItself, KnowsAsManyCoordinatesAsContextsCanTeach) {
  const SoftmaxLayer layer = random_layer(1500, 64, 3);
  const RowMajorMatrix contexts = clustered_contexts(1200, 64, 6, 9);
  const CertifiedOptions options = {.prefix = 8, .width = 32, .boxes = BoundBoxes::never};
  const auto head = Certified::build(layer, contexts.topRows(800), options);
  const detail::CertifiedIndex& index = head->screener().index();
  ASSERT_TRUE(index.outside.models);
  EXPECT_EQ(index.outside.features.coordinates(), 16U);
  EXPECT_EQ(index.outside.models->models().dim(), index.outside.features.count());
  // 96 of 600 choose the bounds; a feature takes four of the others.
  const auto of_fewer = Certified::build(layer, contexts.topRows(600), options);
  EXPECT_EQ(of_fewer->screener().index().outside.features.coordinates(), 14U);

  const testing::TemporaryFolder folder;
  save_index(*head, folder.path() / "index");
  const auto loaded = load_index<Certified>(folder.path() / "index", layer);
  TokenMask many = TokenMask::all(1500);  // of what it forbids nothing was learned
  for (TokenId id = 0; id < 60; ++id) many.forbid(id);
  const auto allows = [&many](TokenId id) { return many.allows(id); };
  std::vector<double> errors;
  std::vector<double> by_position;
  for (Eigen::Index row = 800; row < contexts.rows(); ++row) {
    const Eigen::VectorXf h = contexts.row(row);
    const Reference reference(layer, h);
    const double log_z = head->query(h, {.k = 5}).log_z;
    EXPECT_EQ(loaded->query(h, {.k = 5}).log_z, log_z);
    errors.push_back(std::abs(log_z - reference.log_z));
    by_position.push_back(
        std::abs(head->query(h, {.k = 5, .allowed = many}).log_z - reference.edited(allows, {}).log_z));
  }
  EXPECT_LT(detail::quantile(errors, 0.5), detail::quantile(by_position, 0.5));
}

TEST(OutsideOfTheBoundsItself, IsLearnedFromAFewHundredContexts) {
  const SoftmaxLayer layer = random_layer(1500, 32, 3);
  const RowMajorMatrix contexts = clustered_contexts(600, 32, 6, 9);
  const CertifiedOptions options = {.prefix = 8, .width = 32, .boxes = BoundBoxes::never};
  const auto learned = Certified::build(layer, contexts.topRows(300), options);
  ASSERT_TRUE(learned->log_z_error());
  CertifiedOptions unlearned = options;
  unlearned.outside_sample = 0;
  const auto by_position = Certified::build(layer, contexts.topRows(300), unlearned);
  ASSERT_FALSE(by_position->log_z_error());
  std::vector<double> errors;
  std::vector<double> others;
  for (Eigen::Index row = 300; row < contexts.rows(); ++row) {
    const Eigen::VectorXf h = contexts.row(row);
    const double log_z = Reference(layer, h).log_z;
    errors.push_back(std::abs(learned->query(h, {.k = 5}).log_z - log_z));
    others.push_back(std::abs(by_position->query(h, {.k = 5}).log_z - log_z));
  }
  EXPECT_LT(detail::quantile(errors, 0.5), 0.5 * detail::quantile(others, 0.5));
}

// Of contexts in 25 runs every fifth run is held out: here those of longer contexts.
TEST(OutsideOfTheBoundsItself, IsNotLearnedWhereThatHelpsNoOtherContexts) {
  const SoftmaxLayer layer = random_layer(1500, 32, 3);
  RowMajorMatrix contexts = clustered_contexts(1000, 32, 6, 9);
  const RowMajorMatrix others = 4.0F * clustered_contexts(1000, 32, 6, 77);
  for (Eigen::Index i = 0; i < 1000; ++i) {
    if (i / 40 % 5 == 4) contexts.row(i) = others.row(i);
  }
  const CertifiedOptions options = {.prefix = 8, .width = 32, .boxes = BoundBoxes::never};
  EXPECT_FALSE(Certified::build(layer, contexts, options)->log_z_error());
}

TEST(OutsideOfTheBoundsItself, IsNotLearnedFromTooFewContexts) {
  const SoftmaxLayer layer = random_layer(1500, 32, 3);
  const RowMajorMatrix contexts = clustered_contexts(190, 32, 6, 9);
  EXPECT_FALSE(Certified::build(layer, contexts)->log_z_error());
  EXPECT_FALSE(Certified::build(layer)->log_z_error());
}

}  // namespace
}  // namespace topksoftmax
