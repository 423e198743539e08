// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/certified.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/by_bounds.hpp"
#include "support/executors.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/same_answers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::expect_same;
using testing::expect_same_and_work;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::Reference;

/// What a test asks in, and how often bounds have answered.
struct Asked : testing::ByBounds {
  Workspace workspace;
};

/// Asks both heads and compares bit for bit; log Z must lie in its interval.
void expect_exact(const Certified& certified, const Exact& exact, const Eigen::VectorXf& h, std::size_t k,
                  Asked& asked, const std::string& what) {
  TopK answer;
  TopK truth;
  certified.query(h, {.k = k}, asked.workspace, answer);
  exact.query(h, {.k = k}, asked.workspace, truth);
  asked.count(answer, certified.layer().vocab());
  ASSERT_TRUE(answer.certified) << what;
  ASSERT_EQ(answer.ids, truth.ids) << what;
  ASSERT_EQ(answer.logits, truth.logits) << what;
  ASSERT_LE(answer.log_z_low, truth.log_z + 1e-5 * std::max(1.0, std::abs(truth.log_z))) << what;
  ASSERT_GE(answer.log_z_high, truth.log_z - 1e-5 * std::max(1.0, std::abs(truth.log_z))) << what;
}

constexpr std::array kCoordinates = {BoundCoordinates::balanced, BoundCoordinates::contexts,
                                     BoundCoordinates::rows};

constexpr double kAnyWidth = std::numeric_limits<double>::infinity();

constexpr std::array kBoxes = {BoundBoxes::automatic, BoundBoxes::never, BoundBoxes::always};

struct Attack {
  std::string name;
  std::function<RowMajorMatrix()> rows;
  bool equal = false;  ///< all logits are, so that no bound tells any apart
};

std::vector<Attack> attacks(Eigen::Index dim) {
  return {
      {"random", [dim] { return random_matrix(900, dim, 1); }},
      {"huge norms",
       [dim] {
         RowMajorMatrix W = random_matrix(900, dim, 2);
         for (Eigen::Index v = 0; v < 900; v += 90) W.row(v) *= 1e12F;
         return W;
       }},
      {"one giant coordinate",
       [dim] {
         RowMajorMatrix W = random_matrix(900, dim, 3);
         W.col(7) *= 1e6F;
         W(13, 2) = 1e9F;
         return W;
       }},
      {"identical rows", [dim] { return RowMajorMatrix(RowMajorMatrix::Constant(900, dim, 0.37F)); }, true},
      {"rows that differ in the last bit",
       [dim] {
         RowMajorMatrix W = random_matrix(1, dim, 4).replicate(900, 1);
         for (Eigen::Index v = 0; v < 900; ++v) {
           float& x = W(v, v % dim);
           x = std::nextafter(x, v % 3 == 0 ? 100.0F : -100.0F);
         }
         return W;
       }},
      {"denormals", [dim] { return RowMajorMatrix(random_matrix(900, dim, 5) * 1e-41F); }},
      {"zeros", [dim] { return RowMajorMatrix(RowMajorMatrix::Zero(900, dim)); }, true},
      {"low rank", [dim] { return RowMajorMatrix(random_matrix(900, 2, 6) * random_matrix(2, dim, 7)); }},
      {"many scales",
       [dim] {
         RowMajorMatrix W = random_matrix(900, dim, 8);
         for (Eigen::Index v = 0; v < 900; ++v) W.row(v) *= std::pow(10.0F, static_cast<float>(v % 13 - 6));
         return W;
       }},
  };
}

/// Contexts that were learned from, and such as nobody would learn from: far away, orthogonal, a row, and of
/// every length. Those that are never bounded, for their length or their layer, are asked apart.
void expect_exact_for_unusual(const Certified& certified, const SoftmaxLayer& layer,
                              const RowMajorMatrix& contexts, Asked& asked, Asked& apart,
                              const std::string& what) {
  const auto exact = Exact::make(layer);
  const RowMajorMatrix W = layer.weights();
  for (unsigned seed = 0; seed < 30; ++seed) {
    const Eigen::VectorXf seen = contexts.row(static_cast<Eigen::Index>(seed));
    const Eigen::VectorXf far = random_vector(W.cols(), seed, 100.0F);
    const Eigen::VectorXf row = W.row(static_cast<Eigen::Index>(seed)).normalized();
    const Eigen::VectorXf orthogonal = far - far.dot(seen) / seen.squaredNorm() * seen;
    for (const std::size_t k : {1U, 5U, 100U}) {
      expect_exact(certified, *exact, seen, k, asked, what);
      expect_exact(certified, *exact, far, k, asked, what);
      expect_exact(certified, *exact, orthogonal, k, asked, what);
      expect_exact(certified, *exact, seen * 1e-21F, k, apart, what);
      expect_exact(certified, *exact, seen * 1e-41F, k, apart, what);
      expect_exact(certified, *exact, seen * 1e18F, k, apart, what);
      if (row.allFinite()) expect_exact(certified, *exact, row, k, asked, what);
    }
  }
}

TEST(Certified, IsNeverWrongUnderAttack) {
  Asked asked;
  Asked apart;
  for (const Attack& attack : attacks(20)) {
    for (const auto& [coordinates, biased, boxes] :
         {std::tuple(BoundCoordinates::balanced, false, BoundBoxes::never),
          std::tuple(BoundCoordinates::balanced, true, BoundBoxes::never),
          std::tuple(BoundCoordinates::balanced, false, BoundBoxes::always),
          std::tuple(BoundCoordinates::balanced, true, BoundBoxes::always),
          std::tuple(BoundCoordinates::contexts, true, BoundBoxes::always),
          std::tuple(BoundCoordinates::rows, true, BoundBoxes::never)}) {
      const RowMajorMatrix W = attack.rows();
      const SoftmaxLayer layer = SoftmaxLayer::own(W, biased ? random_vector(900, 9) : Eigen::VectorXf());
      const RowMajorMatrix contexts = clustered_contexts(300, 20, 5, 10);
      const auto certified = Certified::build(
          layer, contexts, {.prefix = 8, .width = 12, .coordinates = coordinates, .boxes = boxes});
      expect_exact_for_unusual(*certified, layer, contexts, attack.equal ? apart : asked, apart, attack.name);
    }
  }
  asked.expect_mostly_by_bounds();
}

TEST(Certified, IsNeverWrongUnderAttackWithInt4) {
  Asked asked;
  Asked apart;
  for (const Attack& attack : attacks(77)) {
    for (const auto& [prefix, int4_width, width] :
         {std::tuple(8U, 32U, 48U), std::tuple(12U, 64U, 77U), std::tuple(4U, 64U, 0U)}) {
      const SoftmaxLayer layer = SoftmaxLayer::own(attack.rows(), random_vector(900, 9));
      const RowMajorMatrix contexts = clustered_contexts(300, 77, 5, 10);
      const auto certified =
          Certified::build(layer, contexts, {.prefix = prefix, .int4_width = int4_width, .width = width});
      expect_exact_for_unusual(*certified, layer, contexts, attack.equal ? apart : asked, apart, attack.name);
    }
  }
  asked.expect_mostly_by_bounds();
}

TEST(Certified, AgreesWithDoublePrecisionWithinItsRounding) {
  const SoftmaxLayer layer = random_layer(500, 32, 3);
  const RowMajorMatrix contexts = clustered_contexts(400, 32, 6, 4);
  const auto certified = Certified::build(layer, contexts, {.width = 16});
  testing::ByBounds by_bounds;
  for (Eigen::Index i = 0; i < 100; ++i) {
    const Reference reference(layer, contexts.row(i));
    const TopK answer = certified->query(contexts.row(i), {.k = 3});
    by_bounds.count(answer, layer.vocab());
    const auto last = static_cast<std::size_t>(answer.ids.back());
    for (std::size_t v = 0; v < 500; ++v) {
      if (std::find(answer.ids.begin(), answer.ids.end(), static_cast<TokenId>(v)) != answer.ids.end())
        continue;
      EXPECT_LE(reference.logits[v],
                reference.logits[last] + reference.tolerance(v, 32) + reference.tolerance(last, 32));
    }
    EXPECT_LE(answer.log_z_low, reference.log_z + 1e-5);
    EXPECT_GE(answer.log_z_high, reference.log_z - 1e-5);
  }
  by_bounds.expect_mostly_by_bounds();
}

/// The same for so many contexts: every second one of those given, the others random, of all lengths.
void expect_exact_of_many(const Certified& certified, const RowMajorMatrix& contexts, unsigned count,
                          std::mt19937& engine, Asked& asked, const std::string& what) {
  const auto exact = Exact::make(certified.layer());
  for (unsigned q = 0; q < count; ++q) {
    const Eigen::VectorXf h =
        q % 2 == 0 ? Eigen::VectorXf(contexts.row(q % contexts.rows()))
                   : random_vector(contexts.cols(), q, std::pow(10.0F, static_cast<float>(q % 7) - 3.0F));
    expect_exact(certified, *exact, h, 1 + engine() % 20, asked, what);
  }
}

TEST(Certified, RandomLayersAndContextsOfEveryShape) {
  std::mt19937 engine(12);
  Asked asked;
  for (unsigned round = 0; round < 60; ++round) {
    const auto vocab = static_cast<Eigen::Index>(1 + engine() % 400);
    const auto dim = static_cast<Eigen::Index>(1 + engine() % 70);
    const auto width = static_cast<std::size_t>(4 + engine() % 60);
    const std::size_t prefix = engine() % 2 == 0 ? 0 : 4 + engine() % (width - 3) / 4 * 4;
    const SoftmaxLayer layer = random_layer(vocab, dim, round);
    const RowMajorMatrix contexts =
        clustered_contexts(static_cast<Eigen::Index>(1 + engine() % 100), dim, 3, round);
    const BoundBoxes boxes = kBoxes[engine() % kBoxes.size()];
    const auto certified =
        engine() % 4 == 0 ? Certified::build(layer, {.prefix = prefix, .width = width, .boxes = boxes})
                          : Certified::build(layer, contexts,
                                             {.prefix = prefix,
                                              .width = width,
                                              .coordinates = kCoordinates[engine() % kCoordinates.size()],
                                              .boxes = boxes});
    expect_exact_of_many(*certified, contexts, 200, engine, asked, "round " + std::to_string(round));
  }
  asked.expect_mostly_by_bounds();
}

TEST(Certified, RandomLayersOfEveryInt4Width) {
  std::mt19937 engine(13);
  Asked asked;
  for (unsigned round = 0; round < 40; ++round) {
    const auto vocab = static_cast<Eigen::Index>(1 + engine() % 700);
    const auto dim = static_cast<Eigen::Index>(1 + engine() % 200);
    const std::size_t prefix = 4 + 4 * (engine() % 8);
    const SoftmaxLayer layer = random_layer(vocab, dim, round);
    const RowMajorMatrix contexts =
        clustered_contexts(static_cast<Eigen::Index>(1 + engine() % 100), dim, 3, round);
    const auto certified =
        Certified::build(layer, contexts, {.prefix = prefix, .int4_width = 32 * (1 + engine() % 6)});
    expect_exact_of_many(*certified, contexts, 100, engine, asked, "round " + std::to_string(round));
  }
  asked.expect_mostly_by_bounds();
}

/// Contexts that fill all directions, and lean to a row: of many heads of today.
RowMajorMatrix leaning_contexts(const RowMajorMatrix& W, Eigen::Index count, unsigned seed) {
  RowMajorMatrix H = random_matrix(count, W.cols(), seed, 0.05F);
  std::mt19937 engine(seed);
  for (Eigen::Index i = 0; i < count; ++i) {
    const auto row = W.row(static_cast<Eigen::Index>(engine() % static_cast<std::uint64_t>(W.rows())));
    H.row(i) += 6.0F / row.squaredNorm() * row;
  }
  return H;
}

TEST(Certified, CodesAllCoordinatesWhereContextsFillAllDirections) {
  constexpr std::size_t kMany = 3200;  // for 192 dimensions
  const RowMajorMatrix W = random_matrix(kMany, 192, 1, 1.0F);
  const RowMajorMatrix contexts = leaning_contexts(W, 2000, 2);
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const auto chosen = Certified::build(layer, contexts);
  const CertifiedOptions& options = chosen->screener().index().options;
  EXPECT_GE(options.int4_width, 96U);
  const auto in_int8 =
      Certified::build(layer, contexts, {.prefix = 64, .width = 192, .boxes = BoundBoxes::never});
  const auto exact = Exact::make(layer);
  Asked asked;
  std::size_t passing = 0;
  std::size_t passing_int8 = 0;
  for (Eigen::Index i = 0; i < 200; ++i) {
    expect_exact(*chosen, *exact, contexts.row(i), 5, asked, "chosen");
    passing += chosen->query(contexts.row(i), {.k = 5}).work.screened - kMany;
    passing_int8 += in_int8->query(contexts.row(i), {.k = 5}).work.screened - kMany;
  }
  // 64 coordinates in int8 leave most rows, as many bytes of int4 few.
  EXPECT_LT(passing, 200U * 300U);
  EXPECT_GT(passing_int8, 200U * 2000U);
  asked.expect_mostly_by_bounds();
}

TEST(Certified, IndexesHaveInt4AsTheyWereBuilt) {
  const RowMajorMatrix W = random_matrix(700, 96, 1, 1.0F);
  const RowMajorMatrix contexts = leaning_contexts(W, 300, 2);
  const SoftmaxLayer layer = SoftmaxLayer::own(W, random_vector(700, 3));
  const auto built = Certified::build(layer, contexts, {.prefix = 16, .int4_width = 64});
  const testing::TemporaryFolder folder(testing::memory_folder());
  save_index(*built, folder.path() / "int4.index");
  const auto loaded = load_index<Certified>(folder.path() / "int4.index", layer);
  EXPECT_EQ(loaded->screener().index().options.int4_width, 64U);
  for (Eigen::Index i = 0; i < 50; ++i) {
    const TopK a = built->query(contexts.row(i), {.k = 7});
    const TopK b = loaded->query(contexts.row(i), {.k = 7});
    ASSERT_EQ(a.ids, b.ids);
    ASSERT_EQ(a.logits, b.logits);
    ASSERT_EQ(a.log_z, b.log_z);
    ASSERT_EQ(a.work.screened, b.work.screened);
  }
}

TEST(Certified, MinglesNothingOfTheWorkspaceWithAContext) {
  const SoftmaxLayer layer = random_layer(3000, 80, 3);
  const RowMajorMatrix contexts = clustered_contexts(60, 80, 6, 4);
  const auto exact = Exact::make(layer);
  Asked asked;
  for (const std::size_t prefix : {4U, 8U, 20U}) {
    for (std::size_t behind = 54; behind <= 60; ++behind) {
      const auto certified = Certified::build(
          layer, contexts, {.prefix = prefix, .width = prefix + behind, .boxes = BoundBoxes::never});
      for (Eigen::Index i = 0; i < 20; ++i) {
        asked.workspace = Workspace();
        auto& [coordinates, integers, bytes, estimates, radii, divided, transformed, opened, blocks, reaching,
               survivors, ids, logits, features, forbidden, forbidden_logits] =
            asked.workspace.scratch<detail::CertifiedScratch>();
        for (ScratchBuffer* const buffer :
             {&coordinates, &integers, &bytes, &estimates, &radii, &divided, &transformed, &opened, &blocks,
              &reaching, &survivors, &ids, &logits, &features, &forbidden, &forbidden_logits}) {
          std::fill_n(buffer->get<float>(2000), 2000, 1e30F);
        }
        expect_exact(*certified, *exact, contexts.row(i), 5, asked,
                     std::to_string(prefix) + " and " + std::to_string(behind));
      }
    }
  }
  asked.expect_mostly_by_bounds();
}

TEST(Certified, IntervalsHoldLogZWhateverIsRounded) {
  const SoftmaxLayer layer = random_layer(2000, 16, 3);
  const RowMajorMatrix contexts = clustered_contexts(200, 16, 6, 4);
  const auto certified = Certified::build(layer, contexts);
  const auto exact = Exact::make(layer);
  for (const float sharpness : {0.3F, 1.0F, 4.0F}) {
    for (const double tolerance : {kAnyWidth, 0.1, 1e-3, 1e-5}) {
      for (const auto& row : contexts.rowwise()) {
        const Eigen::VectorXf h = row.transpose() * sharpness;
        const TopK answer = certified->query(h, {.k = 5, .log_z_tolerance = tolerance});
        if (answer.normalizer != Normalizer::interval) continue;
        long double sum = 0.0L;
        for (const float logit : exact->query(h, {.k = 2000}).logits) {
          sum += std::exp(static_cast<long double>(logit) - static_cast<long double>(answer.logits[0]));
        }
        const auto log_z = static_cast<double>(static_cast<long double>(answer.logits[0]) + std::log(sum));
        ASSERT_LE(answer.log_z_low, log_z);
        ASSERT_GE(answer.log_z_high, log_z);
      }
    }
  }
}

// Padding is a context of zeros: it has no bounds, and none are made in vain.
TEST(Certified, BoundsNoRowForAContextOfZeros) {
  const SoftmaxLayer layer = random_layer(2000, 24, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, 24, 6, 9);
  const Exact exact(layer);
  RowMajorMatrix some = RowMajorMatrix::Zero(3, 24);
  some.row(1) = contexts.row(7);
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto certified = Certified::build(layer, contexts, {.boxes = boxes});
    const std::vector<TopK> together = certified->query_batch(some, {.k = 5});
    for (const Eigen::Index row : {0, 1, 2}) {
      const Eigen::VectorXf h = some.row(row);
      const TopK answer = certified->query(h, {.k = 5});
      EXPECT_TRUE(answer.certified);
      EXPECT_EQ(answer.ids, exact.query(h, {.k = 5}).ids);
      EXPECT_EQ(answer.ids, together[static_cast<std::size_t>(row)].ids);
      EXPECT_EQ(answer.work.screened == 0, row != 1);
    }
  }
}

TEST(Certified, LogZIsFiniteWhereLogitsAre) {
  RowMajorMatrix W = random_matrix(2000, 16, 3);
  const RowMajorMatrix contexts = clustered_contexts(60, 16, 6, 4);
  for (const float bias : {4e6F, 5e6F, 1e9F, 1e30F}) {
    Eigen::VectorXf b = Eigen::VectorXf::Zero(2000);
    b[7] = bias;
    const SoftmaxLayer layer = SoftmaxLayer::own(W, b);
    const auto certified = Certified::build(layer, contexts);
    for (const auto& h : contexts.rowwise()) {
      const TopK answer = certified->query(h, {.k = 1});
      ASSERT_EQ(answer.ids, std::vector<TokenId>{7});
      ASSERT_TRUE(std::isfinite(answer.log_z_high)) << bias;
      ASSERT_NEAR(answer.log_prob(0), 0.0, 1e-5) << bias;
    }
  }
}

TEST(Certified, OneLogitFarFromAllOthersSpoilsNoThreshold) {
  Eigen::VectorXf b = Eigen::VectorXf::Zero(8000);
  b[4000] = 1e9F;
  const SoftmaxLayer layer = SoftmaxLayer::own(random_matrix(8000, 16, 3), b);
  const RowMajorMatrix contexts = clustered_contexts(100, 16, 6, 4);
  for (const BoundBoxes boxes : kBoxes) {
    const auto certified = Certified::build(layer, contexts, {.boxes = boxes});
    for (const auto& h : contexts.rowwise()) {
      const TopK answer = certified->query(h, {.k = 5});
      ASSERT_FALSE(answer.work.fell_back);
      ASSERT_LT(answer.work.candidates, 200U);
    }
  }
}

TEST(Certified, LearnsFromContextsWhoseSquaresAreNoFloats) {
  const SoftmaxLayer layer = random_layer(4000, 64, 3);
  const RowMajorMatrix contexts = random_matrix(500, 6, 4) * random_matrix(6, 64, 5);
  const auto certified = Certified::build(layer, contexts * 1e25F);
  for (Eigen::Index i = 0; i < 50; ++i) {
    EXPECT_LT(certified->query(contexts.row(i), {.k = 5}).work.candidates, 400U);
  }
}

TEST(Certified, BatchesFallBackWhereSingleQueriesDo) {
  const SoftmaxLayer layer = random_layer(200, 16, 3);
  const RowMajorMatrix contexts = clustered_contexts(9, 16, 3, 4);
  const auto certified = Certified::build(layer, contexts);
  for (const QueryOptions& options :
       {QueryOptions{.k = 100}, QueryOptions{.k = 3}, QueryOptions{.k = 3, .log_z_tolerance = 0.0}}) {
    const std::vector<TopK> together = certified->query_batch(contexts, options);
    for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
      const QueryWork alone = certified->query(contexts.row(i), options).work;
      EXPECT_EQ(together[static_cast<std::size_t>(i)].work.fell_back, alone.fell_back) << options.k;
    }
  }
}

TEST(Certified, ReadsFarLessThanTheLayerWhereContextsAreOfFewKinds) {
  const SoftmaxLayer layer = random_layer(4000, 64, 3);
  RowMajorMatrix contexts = random_matrix(500, 6, 4) * random_matrix(6, 64, 5);
  const auto certified = Certified::build(layer, contexts.topRows(400));
  for (Eigen::Index i = 400; i < 500; ++i) {
    const TopK answer = certified->query(contexts.row(i), {.k = 5});
    EXPECT_FALSE(answer.work.fell_back);
    EXPECT_LT(answer.work.candidates, 40U);
    EXPECT_LT(answer.work.bytes_read, layer.bytes() / 4);
  }
}

TEST(Certified, LearnsNoMoreOfContextsThatAreRepeated) {
  const SoftmaxLayer layer = random_layer(2000, 64, 3);
  const RowMajorMatrix few = random_matrix(30, 64, 4);
  const auto once = Certified::build(layer, few);
  const auto repeated = Certified::build(layer, few.replicate(40, 1));
  EXPECT_EQ(repeated->index_bytes(), once->index_bytes());
  const RowMajorMatrix others = random_matrix(50, 64, 5);
  for (Eigen::Index i = 0; i < others.rows(); ++i) {
    const TopK answer = repeated->query(others.row(i), {.k = 5});
    EXPECT_FALSE(answer.work.fell_back);
    EXPECT_EQ(answer.work.bytes_read, once->query(others.row(i), {.k = 5}).work.bytes_read);
  }
}

TEST(Certified, PrefixesLeaveFewestRowsInBalancedCoordinates) {
  // Contexts with few large directions, rows with other ones.
  const RowMajorMatrix mixing = random_matrix(40, 40, 1);
  const RowMajorMatrix row_mixing = random_matrix(40, 40, 2);
  RowMajorMatrix contexts = random_matrix(500, 40, 3);
  RowMajorMatrix W = random_matrix(3000, 40, 4);
  for (Eigen::Index j = 0; j < 40; ++j) {
    contexts.col(j) *= std::pow(0.8F, static_cast<float>(j));
    W.col(j) *= std::pow(0.9F, static_cast<float>(j));
  }
  contexts *= mixing;
  W *= row_mixing * 0.1F;
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  std::vector<std::size_t> left;
  for (const BoundCoordinates coordinates : kCoordinates) {
    const auto certified =
        Certified::build(layer, contexts.topRows(400),
                         {.prefix = 16, .width = 40, .coordinates = coordinates, .boxes = BoundBoxes::never});
    std::size_t sum = 0;
    for (Eigen::Index i = 400; i < 500; ++i) {
      sum += certified->query(contexts.row(i), {.k = 5}).work.screened - layer.vocab();
    }
    left.push_back(sum);
  }
  EXPECT_LT(left[0], left[1]);
  EXPECT_LT(left[0], left[2]);
}

TEST(Certified, TailsAreAsLongAsContextsNeed) {
  // Contexts, each near to one row, that differ in every direction: half of the coordinates say little.
  constexpr Eigen::Index kDim = 160;
  const RowMajorMatrix W = random_matrix(2000, kDim, 1);
  RowMajorMatrix contexts = random_matrix(400, kDim, 2);
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) contexts.row(i) += 0.5F * W.row(5 * i);
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const auto exact = Exact::make(layer);
  const auto chosen = Certified::build(layer, contexts.topRows(300));
  const auto of_rows = Certified::build(layer);
  const auto half = Certified::build(layer, contexts.topRows(300), {.width = kDim / 2});
  Asked asked;
  std::size_t scored = 0;
  std::size_t scored_of_rows = 0;
  std::size_t scored_by_half = 0;
  for (Eigen::Index i = 300; i < 400; ++i) {
    expect_exact(*chosen, *exact, contexts.row(i), 1, asked, "chosen");
    scored += chosen->query(contexts.row(i), {.k = 1}).work.candidates;
    expect_exact(*of_rows, *exact, contexts.row(i), 1, asked, "of rows");
    scored_of_rows += of_rows->query(contexts.row(i), {.k = 1}).work.candidates;
    scored_by_half += half->query(contexts.row(i), {.k = 1}).work.candidates;
  }
  EXPECT_LT(10 * scored, scored_by_half);
  EXPECT_LT(10 * scored_of_rows, scored_by_half);
  asked.expect_mostly_by_bounds();
}

TEST(Certified, BoxesAreOpenedForFewRows) {
  // Rows and contexts of few kinds: those of other kinds than the context's are far below it.
  const RowMajorMatrix kinds = random_matrix(12, 32, 1, 1.5F);
  RowMajorMatrix W = random_matrix(4000, 32, 2, 0.1F);
  RowMajorMatrix contexts = random_matrix(400, 32, 3, 0.1F);
  for (Eigen::Index v = 0; v < W.rows(); ++v) W.row(v) += kinds.row(v % 12);
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) contexts.row(i) += kinds.row(i % 12);
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const auto exact = Exact::make(layer);
  const auto chosen = Certified::build(layer, contexts.topRows(300));
  const auto without = Certified::build(layer, contexts.topRows(300), {.boxes = BoundBoxes::never});
  Asked asked;
  for (Eigen::Index i = 300; i < 400; ++i) {
    expect_exact(*chosen, *exact, contexts.row(i), 5, asked, "chosen");
    expect_exact(*without, *exact, contexts.row(i), 5, asked, "without");
    EXPECT_LT(chosen->query(contexts.row(i), {.k = 5}).work.screened, layer.vocab() / 2);
    EXPECT_GE(without->query(contexts.row(i), {.k = 5}).work.screened, layer.vocab());
  }
  asked.expect_mostly_by_bounds();
}

TEST(Certified, HasNoBoxesWhereTheyWouldAllBeOpened) {
  const SoftmaxLayer layer = random_layer(3000, 48, 3);
  const RowMajorMatrix contexts = random_matrix(200, 48, 4);
  const auto certified = Certified::build(layer, contexts, {.width = 24});
  EXPECT_GE(certified->query(contexts.row(0), {.k = 5}).work.screened, layer.vocab());
}

TEST(Certified, MasksAndBiasesAreCertifiedToo) {
  const SoftmaxLayer layer = random_layer(2000, 24, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, 24, 6, 4);
  const auto exact = Exact::make(layer);
  const std::vector<TokenBias> bias = {{4, 3.0F}, {5, 100.0F}, {600, -50.0F}, {1998, 6.0F}};
  testing::ByBounds by_bounds;
  for (const BoundBoxes boxes : kBoxes) {
    const auto certified = Certified::build(layer, contexts, {.width = 24, .boxes = boxes});
    for (const TokenId step : {2, 7}) {
      TokenMask mask(2000);
      for (TokenId id = 0; id < 2000; id += step) mask.allow(id);
      for (Eigen::Index i = 0; i < 100; ++i) {
        const QueryOptions options = {.k = 6, .allowed = mask, .logit_bias = bias};
        const TopK answer = certified->query(contexts.row(i), options);
        const TopK truth = exact->query(contexts.row(i), options);
        by_bounds.count(answer, options.allowed.count(layer.vocab()));
        EXPECT_TRUE(answer.certified);
        EXPECT_EQ(answer.ids, truth.ids);
        EXPECT_EQ(answer.logits, truth.logits);
        EXPECT_LE(answer.log_z_low, truth.log_z + 1e-5);
        EXPECT_GE(answer.log_z_high, truth.log_z - 1e-5);
      }
    }
  }
  by_bounds.expect_mostly_by_bounds();
}

TEST(Certified, StoredTypesAreCertifiedAsStored) {
  const RowMajorMatrix W = random_matrix(700, 20, 3);
  const Eigen::Matrix<Eigen::half, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> halves =
      W.cast<Eigen::half>();
  kernels::Rows rows;
  rows.data = halves.data();
  rows.type = WeightType::float16;
  rows.count = 700;
  rows.dim = rows.stride = 20;
  const SoftmaxLayer layer = SoftmaxLayer::borrow(rows, 0);
  const RowMajorMatrix contexts = clustered_contexts(200, 20, 4, 8);
  const auto certified = Certified::build(layer, contexts, {.width = 20});
  const auto exact = Exact::make(layer);
  Asked asked;
  for (Eigen::Index i = 0; i < 200; ++i)
    expect_exact(*certified, *exact, contexts.row(i), 5, asked, "float16");
  asked.expect_mostly_by_bounds();
}

TEST(Certified, EstimatesLogZFarBetterThanItsInterval) {
  const SoftmaxLayer layer = random_layer(3000, 24, 1);
  const RowMajorMatrix learned = clustered_contexts(400, 24, 6, 2);
  const RowMajorMatrix others = clustered_contexts(460, 24, 6, 2).bottomRows(60);
  const auto exact = Exact::make(layer);
  for (const BoundBoxes boxes : kBoxes) {
    const auto certified = Certified::build(layer, learned, {.width = 12, .boxes = boxes});
    for (const std::size_t k : {1U, 5U, 20U}) {
      double error = 0.0;
      double width = 0.0;
      for (const auto& h : others.rowwise()) {
        const TopK answer = certified->query(h, {.k = k});
        ASSERT_LE(answer.log_z_low, answer.log_z);
        ASSERT_GE(answer.log_z_high, answer.log_z);
        error += std::abs(answer.log_z - exact->query(h, {.k = k}).log_z);
        width += answer.log_z_high - answer.log_z_low;
      }
      EXPECT_GT(width, 0.0);
      EXPECT_LT(error, 0.1 * width) << "k = " << k;
    }
  }
}

TEST(Certified, NarrowsTheIntervalOfLogZAsFarAsAskedFor) {
  const SoftmaxLayer layer = random_layer(3000, 24, 1);
  const RowMajorMatrix contexts = clustered_contexts(60, 24, 6, 2);
  const auto exact = Exact::make(layer);
  std::vector<TokenBias> bias;
  for (TokenId id = 0; id < 3000; id += 200) bias.push_back({id, 2.0F});
  TokenMask mask(layer.vocab());
  for (TokenId id = 0; id < 3000; id += 2) mask.allow(id);
  testing::ByBounds by_bounds;
  const auto check = [&](const Certified& certified, bool edited) {
    for (const double tolerance : {3.0, 1.0, 0.3, 0.01, 0.0}) {
      QueryOptions options{.k = 5, .log_z_tolerance = tolerance};
      if (edited) {
        options.allowed = mask;
        options.logit_bias = bias;
      }
      for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
        const TopK answer = certified.query(contexts.row(i), options);
        const TopK truth = exact->query(contexts.row(i), options);
        if (tolerance >= 1.0) by_bounds.count(answer, options.allowed.count(layer.vocab()));
        ASSERT_EQ(answer.ids, truth.ids);
        ASSERT_EQ(answer.logits, truth.logits);
        ASSERT_LE(answer.log_z_high - answer.log_z_low, tolerance + 1e-12);
        ASSERT_LE(answer.log_z_low, truth.log_z + 1e-5);
        ASSERT_GE(answer.log_z_high, truth.log_z - 1e-5);
      }
    }
  };
  for (const BoundBoxes boxes : kBoxes) {
    const auto certified = Certified::build(layer, contexts, {.width = 12, .boxes = boxes});
    check(*certified, false);
    check(*certified, true);
  }
  by_bounds.expect_mostly_by_bounds();
  const auto certified = Certified::build(layer, contexts);
  EXPECT_THROW(certified->query(contexts.row(0), {.log_z_tolerance = -1.0}), std::invalid_argument);
  EXPECT_THROW(
      certified->query(contexts.row(0), {.log_z_tolerance = std::numeric_limits<double>::quiet_NaN()}),
      std::invalid_argument);
}

// Layers and contexts of random shapes, scales and kinds; fewer where every step is checked by a sanitizer.
TEST(Certified, AMillionRandomCases) {
#ifdef TOPKSOFTMAX_SANITIZED
  constexpr std::size_t layers = 10;
#else
  constexpr std::size_t layers = 500;
#endif
  constexpr std::size_t queries = 2000;
  std::mt19937 engine(7);
  const auto pick = [&engine](std::size_t least, std::size_t most) {
    return least + engine() % (most - least + 1);
  };
  Asked asked;
  TopK answer;
  TopK truth;
  for (std::size_t round = 0; round < layers; ++round) {
    const auto vocab = static_cast<Eigen::Index>(pick(40, 400));
    const auto dim = static_cast<Eigen::Index>(pick(1, 24));
    const float scale = std::pow(10.0F, static_cast<float>(pick(0, 4)) - 2.0F);
    RowMajorMatrix W = random_matrix(vocab, dim, static_cast<unsigned>(engine()), scale);
    for (Eigen::Index v = 1; v < vocab; ++v) {  // equal rows, and rows a bit apart
      if (engine() % 8 == 0) W.row(v) = W.row(v - 1);
      if (engine() % 16 == 0) W(v, 0) = std::nextafter(W(v, 0), 1e9F);
    }
    Eigen::VectorXf b;
    if (engine() % 3 != 0) b = random_vector(vocab, static_cast<unsigned>(engine()), scale);
    const SoftmaxLayer layer = SoftmaxLayer::own(W, b);
    const auto spread = static_cast<float>(pick(1, 6));
    RowMajorMatrix H =
        clustered_contexts(static_cast<Eigen::Index>(queries), dim, 5, static_cast<unsigned>(engine())) *
        spread;
    CertifiedOptions options{.prefix = 4 * pick(0, 2), .width = pick(8, 20), .context_sample = 200};
    const bool learned = engine() % 4 != 0;
    if (learned) options.coordinates = kCoordinates[pick(0, kCoordinates.size() - 1)];
    options.boxes = kBoxes[pick(0, kBoxes.size() - 1)];
    const auto certified =
        learned ? Certified::build(layer, H.topRows(300), options) : Certified::build(layer, options);
    const auto exact = Exact::make(layer);
    for (std::size_t i = 0; i < queries; ++i) {
      const std::size_t k = pick(1, 8);
      const Eigen::VectorXf h = H.row(static_cast<Eigen::Index>(i));
      certified->query(h, {.k = k}, asked.workspace, answer);
      exact->query(h, {.k = k}, asked.workspace, truth);
      asked.count(answer, layer.vocab());
      ASSERT_TRUE(answer.certified && answer.ids == truth.ids && answer.logits == truth.logits)
          << "layer " << round << ", context " << i << ", k = " << k;
    }
  }
  asked.expect_mostly_by_bounds();
}

TEST(Certified, BatchesThatShareAPassGiveTheSameAnswers) {
  const SoftmaxLayer layer = random_layer(30000, 12, 1);  // more prefixes than one part of a pass
  const RowMajorMatrix contexts = clustered_contexts(27, 12, 3, 2);
  testing::ByBounds by_bounds;
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto certified = Certified::build(layer, contexts, {.prefix = 12, .width = 12, .boxes = boxes});
    for (const std::size_t k : {1U, 20U, 9000U}) {
      const std::vector<TopK> batched = certified->query_batch(contexts, {.k = k});
      for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
        const TopK single = certified->query(contexts.row(i), {.k = k});
        const TopK& answer = batched[static_cast<std::size_t>(i)];
        by_bounds.count(answer, layer.vocab());
        ASSERT_EQ(answer.ids, single.ids);
        ASSERT_EQ(answer.logits, single.logits);
        ASSERT_EQ(answer.log_z_low, single.log_z_low);
        ASSERT_EQ(answer.log_z_high, single.log_z_high);
      }
    }
  }
  by_bounds.expect_mostly_by_bounds();
}

// Those that nothing can be ruled out for, or that want log Z exact, do not keep the others from their pass.
TEST(Certified, ContextsThatShareAPassHaveOptionsOfTheirOwn) {
  const SoftmaxLayer layer = random_layer(30000, 12, 1);
  const RowMajorMatrix contexts = clustered_contexts(27, 12, 3, 2);
  TokenMask even(30000);
  for (TokenId id = 0; id < 30000; id += 2) even.allow(id);
  const std::vector<TokenBias> biases = {{5, 9.0F}, {20000, -30.0F}};
  const std::vector<QueryOptions> options = {{.k = 3, .allowed = even},
                                             {.k = 1, .probabilities = false},
                                             {.k = 3, .logit_bias = biases},
                                             {.k = 9000},
                                             {.k = 2, .log_z_tolerance = 0.0}};
  std::vector<QueryOptions> asked;
  for (std::size_t q = 0; q < 27; ++q) asked.push_back(options[q % options.size()]);
  testing::ByBounds by_bounds;
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto certified = Certified::build(layer, contexts, {.prefix = 12, .width = 12, .boxes = boxes});
    const std::vector<TopK> together = certified->query_each(Contexts::of(contexts), asked);
    for (std::size_t q = 0; q < 27; ++q) {
      const TopK alone = certified->query(contexts.row(static_cast<Eigen::Index>(q)), asked[q]);
      expect_same_and_work(together[q], alone);
      if (asked[q].k < 9000 && asked[q].log_z_tolerance > 0.0) by_bounds.count(together[q], layer.vocab());
    }
  }
  by_bounds.expect_mostly_by_bounds();
}

TEST(Certified, WhatIsBoundedForManyIsNotReadAgain) {
  const SoftmaxLayer layer = random_layer(9000, 64, 1);
  const RowMajorMatrix contexts = clustered_contexts(11, 64, 3, 2);
  TokenMask even(9000);
  for (TokenId id = 0; id < 9000; id += 2) even.allow(id);
  const std::vector<TokenBias> biases = {{5, 9.0F}};
  std::vector<QueryOptions> asked;
  for (std::size_t q = 0; q < 11; ++q) {
    asked.push_back({.k = 2});
    if (q % 3 == 1) asked[q].allowed = even;
    if (q % 4 == 2) asked[q].logit_bias = biases;
  }
  // Boxes of rows lie in a cache: there it is left to each.
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto certified = Certified::build(layer, contexts, {.prefix = 64, .width = 64, .boxes = boxes});
    const detail::CertifiedIndex& index = certified->screener().index();
    ASSERT_EQ(index.shares_scans(), boxes == BoundBoxes::never);
    for (const std::size_t threads : {1U, 3U}) {
      std::vector<Workspace> own(11);
      std::vector<Workspace*> pointers;
      for (Workspace& workspace : own) pointers.push_back(&workspace);
      std::vector<Workspace> workspaces(threads);
      const testing::CountedExecutor executor;
      certified->bound_each(Contexts::of(contexts), asked, pointers, workspaces, executor);
      EXPECT_EQ(executor.loops() > 0, index.shares_scans() && threads > 1);
      for (std::size_t q = 0; q < 11; ++q) {
        const Eigen::VectorXf h = contexts.row(static_cast<Eigen::Index>(q));
        const TopK alone = certified->query(h, asked[q]);
        QueryOptions again = asked[q];
        again.same_context = true;
        TopK answer;
        certified->query(h, again, own[q], answer);
        expect_same(answer, alone);
        const std::size_t saved = index.shares_scans() ? index.bytes_scanned() : 0;
        EXPECT_EQ(answer.work.bytes_read + saved, alone.work.bytes_read);
      }
    }
  }
}

TEST(Certified, IsTheSameWhateverThreadsBuildIt) {
  const SoftmaxLayer layer = random_layer(5000, 32, 1);
  const RowMajorMatrix contexts = clustered_contexts(300, 32, 6, 2);
  const testing::TemporaryFolder folder(testing::memory_folder());
  const auto file_of = [&](const CertifiedOptions& options, const Executor& executor) {
    save_index(*Certified::build(layer, contexts, options, executor), folder.path() / "some.index");
    return testing::read_bytes(folder.path() / "some.index");
  };
  for (const CertifiedOptions& options :
       {CertifiedOptions{}, CertifiedOptions{.prefix = 8, .width = 16, .boxes = BoundBoxes::always}}) {
    EXPECT_EQ(file_of(options, SerialExecutor()), file_of(options, testing::ReversedExecutor()));
  }
}

TEST(Certified, BoxesAreAsWideAsThePrefixAtTheMost) {
  const SoftmaxLayer layer = random_layer(300, 80, 1);
  const CertifiedOptions options = {.prefix = 4, .int4_width = 32, .boxes = BoundBoxes::always};
  for (const auto& head :
       {Certified::build(layer, random_matrix(200, 80, 2), options), Certified::build(layer, options)}) {
    const detail::CertifiedIndex& index = head->screener().index();
    EXPECT_EQ(index.options.prefix, 4U);
    EXPECT_EQ(index.options.int4_width, 32U);
    EXPECT_EQ(index.options.width, 80U);
    EXPECT_EQ(index.options.box_width, 4U);
    EXPECT_TRUE(index.has_boxes());
  }
}

TEST(Certified, RefusesWhatItCannotUse) {
  const SoftmaxLayer layer = random_layer(50, 8, 1);
  RowMajorMatrix contexts = random_matrix(10, 8, 2);
  EXPECT_THROW(Certified::build(layer, random_matrix(10, 7, 2)), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.width = 3}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.width = 16385}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.prefix = 6}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.prefix = 16, .width = 8}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.int4_width = 32}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.prefix = 8, .int4_width = 16}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.prefix = 8, .int4_width = 32, .width = 32}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.prefix = 8, .int4_width = 16384}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.prefix = 8, .box_width = 12}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.prefix = 8, .box_width = 6}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.context_sample = 0}), Error);
  EXPECT_THROW(Certified::build(layer, contexts, {.expected_k = 0}), Error);
  EXPECT_THROW(Certified::build(layer, {.expected_k = 0}), Error);
  EXPECT_THROW(Certified::build(layer, {.coordinates = BoundCoordinates::contexts}), Error);
  contexts(3, 3) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(Certified::build(layer, contexts), Error);
}

}  // namespace
}  // namespace topksoftmax
