// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/dither.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "support/by_bounds.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/rows/coder.hpp"

namespace topksoftmax {
namespace {

using detail::Coder;
using detail::Dither;
using testing::random_matrix;
using testing::random_vector;

TEST(Dither, IsUniformAndNeverHalf) {
  const Dither dither(100'000, 1e-3, 7);
  double sum = 0.0;
  double squares = 0.0;
  for (const float t : dither.t()) {
    ASSERT_LT(std::abs(t), 0.5F);
    sum += static_cast<double>(t);
    squares += static_cast<double>(t) * static_cast<double>(t);
  }
  EXPECT_NEAR(sum / 1e5, 0.0, 0.004);  // 4.4 standard deviations
  EXPECT_NEAR(squares / 1e5, 1.0 / 12.0, 0.001);
}

TEST(Dither, NoneIsZeroAndLeavesErrorsAsTheyAre) {
  const Dither none(40);
  EXPECT_FALSE(none.is_random());
  EXPECT_EQ(none.reach(5), 1.0);
  for (const float t : none.t()) EXPECT_EQ(t, 0.0F);
}

TEST(Dither, ReachesAsFarAsItsBoundSays) {
  for (const std::size_t k : {1U, 5U, 50U}) {
    const double reach = std::sqrt(std::log(static_cast<double>(k) / 1e-9) / 6.0);
    EXPECT_NEAR(Dither(1, 1e-9, 1).reach(k), reach, 1e-4);
    EXPECT_GT(Dither(1, 1e-9, 1).reach(k), reach);
  }
}

/// (x̂ − x)/step of every coordinate x, whose dither begins at `first` and whose step is twice the scale.
std::vector<double> errors(std::span<const double> x, const Coder& coder, const Dither& dither,
                           std::size_t first = 0) {
  std::vector<double> found;
  for (std::size_t j = 0; j < x.size(); ++j) {
    const auto t = static_cast<double>(dither.t()[first + j]);
    found.push_back((coder.value(coder.code(x[j], t), t) - x[j]) / (2.0 * coder.scale()));
  }
  return found;
}

// What the proof rests on: whatever a coordinate is, its error is uniform over all dithers.
TEST(Dither, ErrorsAreUniformWhateverTheCoordinate) {
  constexpr std::size_t kSeeds = 20'000;
  constexpr std::size_t kBins = 20;
  for (const std::size_t bits : {2U, 4U}) {
    const Coder coder(bits, 0.1);
    for (const double share : {-1.0, -0.61, 0.0, 0.003, 0.5, 0.999, 1.0}) {
      const std::vector<double> x = {share * coder.reach()};
      std::vector<double> counts(kBins);
      for (std::size_t seed = 0; seed < kSeeds; ++seed) {
        const double error = errors(x, coder, Dither(1, 1e-3, seed)).front();
        ASSERT_LE(std::abs(error), 0.5 + 1e-9);
        counts[std::min(static_cast<std::size_t>((error + 0.5) * kBins), kBins - 1)] += 1.0;
      }
      double chi_square = 0.0;
      constexpr double kExpected = static_cast<double>(kSeeds) / kBins;
      for (const double count : counts) chi_square += (count - kExpected) * (count - kExpected) / kExpected;
      EXPECT_LT(chi_square, 50.8) << bits << " bits, " << share;  // 19 degrees of freedom, p = 0.0001
    }
  }
}

// Rounding without dither fails this: its errors are the same for every seed.
TEST(Dither, ErrorsOfContextsHaveTheVarianceOfTheClaim) {
  constexpr std::size_t kDim = 64;
  constexpr std::size_t kSeeds = 20'000;
  const Eigen::VectorXd x = random_vector(kDim, 1).cast<double>();
  const Eigen::VectorXd h = random_vector(kDim, 2).cast<double>();
  for (const std::size_t bits : {2U, 4U}) {
    const Coder coder(bits, x.cwiseAbs().maxCoeff() / (std::exp2(bits) - 1.0));
    double squares = 0.0;
    std::size_t beyond = 0;
    // δ for one row: an estimate that is too low by more must be rarer.
    constexpr double kDelta = 0.05;
    for (std::size_t seed = 0; seed < kSeeds; ++seed) {
      const Dither dither(kDim, kDelta, seed);
      const std::vector<double> each = errors({x.data(), kDim}, coder, dither);
      double error = 0.0;
      for (std::size_t j = 0; j < kDim; ++j) error += each[j] * h[static_cast<Eigen::Index>(j)];
      squares += error * error;
      beyond += error < -dither.reach(1) * h.norm() ? 1U : 0U;
    }
    const double variance = h.squaredNorm() / 12.0;
    EXPECT_NEAR(squares / kSeeds / variance, 1.0, 0.04);  // four standard deviations
    EXPECT_LT(static_cast<double>(beyond) / kSeeds, kDelta);
    EXPECT_GT(beyond, 0U) << "a bound that nothing ever passes says nothing of the claim";
  }
}

// The bound of two widths is no sum of both.
TEST(Dither, ErrorsOfTwoWidthsAddUpAsTheirSquaresDo) {
  constexpr std::size_t kDim = 64;
  constexpr std::size_t kSeeds = 20'000;
  constexpr double kDelta = 0.05;
  const Eigen::VectorXd x = random_vector(2 * kDim, 1).cast<double>();
  const Eigen::VectorXd h = random_vector(2 * kDim, 2).cast<double>();
  const Coder int4(4, x.head(kDim).cwiseAbs().maxCoeff() / 7.5);
  const Coder int2(2, x.tail(kDim).cwiseAbs().maxCoeff() / 1.5);
  const double length =
      std::hypot(2.0 * int4.scale() * h.head(kDim).norm(), 2.0 * int2.scale() * h.tail(kDim).norm());
  std::size_t beyond = 0;
  for (std::size_t seed = 0; seed < kSeeds; ++seed) {
    const Dither dither(2 * kDim, kDelta, seed);
    const std::vector<double> of_int4 = errors({x.data(), kDim}, int4, dither);
    const std::vector<double> of_int2 = errors({x.data() + kDim, kDim}, int2, dither, kDim);
    double error = 0.0;
    for (std::size_t j = 0; j < kDim; ++j) {
      error += 2.0 * int4.scale() * of_int4[j] * h[static_cast<Eigen::Index>(j)];
      error += 2.0 * int2.scale() * of_int2[j] * h[static_cast<Eigen::Index>(kDim + j)];
    }
    beyond += error < -dither.reach(1) * length ? 1U : 0U;
  }
  EXPECT_LT(static_cast<double>(beyond) / kSeeds, kDelta);
  EXPECT_GT(beyond, 0U);
}

TEST(Dither, BeyondReachIsWhatIsCutOff) {
  const std::vector<double> x = {0.0, 3.0, -4.0, 1.5};
  const Coder coder(2, 0.5);  // reaches 1.5
  EXPECT_DOUBLE_EQ(beyond_reach(coder, x), std::hypot(1.5, 2.5));
}

/// Contexts that fill all directions and lean towards a row of W each: proven bounds of few bits leave most
/// rows.
RowMajorMatrix leaning_contexts(const RowMajorMatrix& W, Eigen::Index count, std::uint64_t seed) {
  RowMajorMatrix contexts = random_matrix(count, W.cols(), static_cast<unsigned>(seed), 0.1F);
  for (Eigen::Index i = 0; i < count; ++i) {
    const std::uint64_t bits = detail::split_mix(seed, static_cast<std::uint64_t>(i));
    const auto row = W.row(static_cast<Eigen::Index>(bits % static_cast<std::uint64_t>(W.rows())));
    const float lean = 3.0F + 8.0F * static_cast<float>(bits >> 40) * 0x1p-24F;
    contexts.row(i) += lean / row.squaredNorm() * row;
  }
  return contexts;
}

struct HardHead {
  explicit HardHead(Eigen::Index vocab = 2000, Eigen::Index dim = 168)
      : W(random_matrix(vocab, dim, 1, 1.0F)),
        contexts(leaning_contexts(W, 1500, 2)),
        layer(SoftmaxLayer::own(W, random_vector(vocab, 4))) {}

  RowMajorMatrix W;
  RowMajorMatrix contexts;
  SoftmaxLayer layer;
};

TEST(DitheredCertified, AnswersAreExactWithConfidence) {
  const HardHead head;
  const auto exact = Exact::make(head.layer);
  for (const std::size_t int4 : {0U, 32U, 96U, 160U}) {
    const auto dithered = Certified::build(
        head.layer, head.contexts,
        {.prefix = 8, .int4_width = int4, .int2_width = 160 - int4, .failure_probability = 1e-9});
    EXPECT_FALSE(dithered->certifies());
    Workspace workspace;
    std::size_t left = 0;
    for (Eigen::Index i = 0; i < head.contexts.rows(); ++i) {
      for (const std::size_t k : {1U, 5U}) {
        TopK answer;
        dithered->query(head.contexts.row(i), {.k = k}, workspace, answer);
        const TopK right = exact->query(head.contexts.row(i), {.k = k});
        ASSERT_EQ(answer.ids, right.ids);
        ASSERT_EQ(answer.logits, right.logits);
        ASSERT_FALSE(answer.certified);
        ASSERT_EQ(answer.confidence, 1.0 - 1e-9);
        ASSERT_EQ(answer.normalizer, Normalizer::low_rank);
        ASSERT_FALSE(answer.work.fell_back);
        if (k == 1) left += answer.work.screened - 2000;
      }
    }
    EXPECT_LT(left, 1500U * 500U) << "rows that " << int4 << " coordinates of four bits left";
  }
}

// The bounds of a context are for a number of rows: for another one it is bounded again.
TEST(DitheredCertified, OtherNumbersOfTokensOfTheSameContextHaveBoundsOfTheirOwn) {
  const HardHead head;
  const auto dithered =
      Certified::build(head.layer, head.contexts,
                       {.prefix = 8, .int4_width = 32, .int2_width = 128, .failure_probability = 1e-9});
  Workspace same;
  for (Eigen::Index i = 0; i < 20; ++i) {
    for (const std::size_t k : {5U, 40U, 5U}) {
      TopK answer;
      dithered->query(head.contexts.row(i), {.k = k, .same_context = k == 40}, same, answer);
      const TopK alone = dithered->query(head.contexts.row(i), {.k = k});
      ASSERT_EQ(answer.ids, alone.ids);
      ASSERT_EQ(answer.log_z, alone.log_z);
      ASSERT_EQ(answer.work.screened, alone.work.screened);
    }
    TopK again;
    dithered->query(head.contexts.row(i), {.k = 5, .same_context = true}, same, again);
    ASSERT_LT(again.work.screened, 2000U) << "bounds are there already";
  }
}

/// How many of `count` answers, most of them by bounds, are not the exact ones.
std::size_t wrong_answers(const HardHead& head, double failure_probability, std::size_t count) {
  constexpr Eigen::Index kTogether = 10'000;
  const auto dithered = Certified::build(
      head.layer, head.contexts,
      {.prefix = 8, .int4_width = 32, .int2_width = 96, .failure_probability = failure_probability});
  const auto exact = Exact::make(head.layer);
  std::size_t wrong = 0;
  testing::ByBounds by_bounds;
  for (std::size_t asked = 0; asked < count; asked += kTogether) {
    const RowMajorMatrix contexts = leaning_contexts(head.W, kTogether, asked + 3);
    const std::vector<TopK> found = dithered->query_batch(contexts, {.k = 1, .probabilities = false});
    const std::vector<TopK> right = exact->query_batch(contexts, {.k = 1, .probabilities = false});
    for (std::size_t q = 0; q < found.size(); ++q) {
      wrong += found[q].ids != right[q].ids ? 1U : 0U;
      by_bounds.count(found[q], head.layer.vocab());
    }
  }
  by_bounds.expect_mostly_by_bounds();
  return wrong;
}

TEST(DitheredCertified, ManyAnswersAreExact) {
  EXPECT_EQ(wrong_answers(HardHead(), 1e-9, 20'000), 0U);
}

// Takes ten minutes: --gtest_also_run_disabled_tests.
TEST(DitheredCertified, DISABLED_TenMillionAnswersAreExact) {
  EXPECT_EQ(wrong_answers(HardHead(), 1e-9, 10'000'000), 0U);
}

TEST(DitheredCertified, LeavesFewerRowsThanProof) {
  const HardHead head;
  const auto proven = Certified::build(head.layer, head.contexts, {.prefix = 8, .int4_width = 160});
  const auto dithered = Certified::build(head.layer, head.contexts,
                                         {.prefix = 8, .int4_width = 160, .failure_probability = 1e-9});
  std::size_t left_by_proof = 0;
  std::size_t left = 0;
  for (Eigen::Index i = 0; i < 200; ++i) {
    left_by_proof += proven->query(head.contexts.row(i), {.k = 5}).work.screened - 2000;
    left += dithered->query(head.contexts.row(i), {.k = 5}).work.screened - 2000;
  }
  EXPECT_LT(2 * left, left_by_proof);
}

TEST(DitheredCertified, ProofsThatAreAskedForAreGiven) {
  const HardHead head;
  const auto dithered =
      Certified::build(head.layer, head.contexts,
                       {.prefix = 8, .int4_width = 32, .int2_width = 96, .failure_probability = 1e-9});
  const TopK answer = dithered->query(head.contexts.row(0), {.k = 5, .log_z_tolerance = 0.1});
  EXPECT_TRUE(answer.certified);
  EXPECT_EQ(answer.confidence, 1.0);
  EXPECT_EQ(answer.normalizer, Normalizer::exact);
}

TEST(DitheredCertified, NothingIsLeftToChanceWhereNoCodesAreRead) {
  const HardHead head;
  const auto plain = Certified::build(head.layer, head.contexts, {.prefix = 64, .failure_probability = 1e-9});
  EXPECT_TRUE(plain->certifies());
  EXPECT_TRUE(plain->query(head.contexts.row(0), {.k = 5}).certified);
}

TEST(DitheredCertified, IndexesKeepTheirDither) {
  const HardHead head(700, 96);
  const CertifiedOptions options = {
      .prefix = 8, .int4_width = 32, .int2_width = 32, .failure_probability = 1e-6, .dither_seed = 5};
  const auto built = Certified::build(head.layer, head.contexts, options);
  const testing::TemporaryFolder folder(testing::memory_folder());
  save_index(*built, folder.path() / "dithered.index");
  const auto loaded = load_index<Certified>(folder.path() / "dithered.index", head.layer);
  EXPECT_FALSE(loaded->certifies());
  for (Eigen::Index i = 0; i < 50; ++i) {
    const TopK a = built->query(head.contexts.row(i), {.k = 7});
    const TopK b = loaded->query(head.contexts.row(i), {.k = 7});
    ASSERT_EQ(a.ids, b.ids);
    ASSERT_EQ(a.logits, b.logits);
    ASSERT_EQ(a.log_z, b.log_z);
    ASSERT_EQ(a.confidence, b.confidence);
    ASSERT_EQ(a.work.screened, b.work.screened);
  }
}

TEST(DitheredCertified, LogZIsNearTheExactOne) {
  const HardHead head;
  const auto dithered =
      Certified::build(head.layer, head.contexts,
                       {.prefix = 8, .int4_width = 32, .int2_width = 96, .failure_probability = 1e-9});
  const auto exact = Exact::make(head.layer);
  std::vector<double> off;
  for (Eigen::Index i = 0; i < 200; ++i) {
    const TopK a = dithered->query(head.contexts.row(i), {.k = 5});
    off.push_back(std::abs(a.log_z - exact->query(head.contexts.row(i), {.k = 5}).log_z));
  }
  std::nth_element(off.begin(), off.begin() + 100, off.end());
  EXPECT_LT(off[100], 0.1);
}

TEST(DitheredCertified, RefusesCodesOfTwoBitsWithoutChance) {
  const HardHead head(200, 96);
  EXPECT_THROW(Certified::build(head.layer, head.contexts, {.prefix = 8, .int2_width = 32}), Error);
  EXPECT_THROW(Certified::build(head.layer, head.contexts,
                                {.prefix = 8, .int2_width = 16, .failure_probability = 1e-9}),
               Error);
  EXPECT_THROW(Certified::build(head.layer, head.contexts, {.failure_probability = 0.5}), Error);
}

}  // namespace
}  // namespace topksoftmax
