// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/top_k.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"

namespace topksoftmax {
namespace {

/// Two tokens of probability 0.5 and 0.25 under log Z = 0, or under an interval around it.
TopK two_tokens(double spread) {
  TopK answer;
  answer.ids = {3, 1};
  answer.logits = {std::log(0.5F), std::log(0.25F)};
  answer.log_z = 0.0;
  answer.log_z_low = -spread;
  answer.log_z_high = spread;
  answer.normalizer = spread > 0.0 ? Normalizer::interval : Normalizer::exact;
  answer.certified = true;
  return answer;
}

TEST(Nucleus, IsProvenFromExactProbabilities) {
  EXPECT_EQ(check_nucleus(two_tokens(0.0), 0.0), NucleusCheck::inside);
  EXPECT_EQ(check_nucleus(two_tokens(0.0), 0.74), NucleusCheck::inside);
  EXPECT_EQ(check_nucleus(two_tokens(0.0), 0.76), NucleusCheck::outside);
}

TEST(Nucleus, IsUnknownWithinTheInterval) {
  EXPECT_EQ(check_nucleus(two_tokens(0.1), 0.67), NucleusCheck::inside);
  EXPECT_EQ(check_nucleus(two_tokens(0.1), 0.75), NucleusCheck::unknown);
  EXPECT_EQ(check_nucleus(two_tokens(0.1), 0.84), NucleusCheck::outside);
}

TEST(Nucleus, IsUnknownWithoutAProof) {
  TopK answer = two_tokens(0.0);
  answer.certified = false;
  EXPECT_EQ(check_nucleus(answer, 0.1), NucleusCheck::unknown);
  answer = two_tokens(0.0);
  answer.normalizer = Normalizer::candidates;
  EXPECT_EQ(check_nucleus(answer, 0.1), NucleusCheck::unknown);
}

// An exact log Z may be rounded by a share of kSumExpError: within it nothing is proven.
TEST(Nucleus, IsUnknownWithinTheRoundingOfAnExactLogZ) {
  const double rounding = kernels::kSumExpError;
  for (const double off : {-0.9 * rounding, 0.9 * rounding}) {
    TopK answer = two_tokens(0.0);  // they have 0.75
    answer.log_z = answer.log_z_low = answer.log_z_high = answer.log_z + std::log1p(off);
    EXPECT_NE(check_nucleus(answer, 0.75 * (1.0 + 0.05 * rounding)), NucleusCheck::inside);
    EXPECT_NE(check_nucleus(answer, 0.75 * (1.0 - 0.05 * rounding)), NucleusCheck::outside);
  }
}

// No double holds 1e17 + log 1000.
TEST(Nucleus, IsUnknownWhereDoublesLoseWhatOthersWeigh) {
  TopK answer;
  answer.ids = {0, 1};
  answer.logits = {1e17F, 1e17F};
  answer.log_z = answer.log_z_low = answer.log_z_high = static_cast<double>(1e17F);
  answer.normalizer = Normalizer::exact;
  answer.certified = true;
  EXPECT_EQ(check_nucleus(answer, 0.5), NucleusCheck::unknown);
}

TEST(Nucleus, AgreesWithTheFullSoftmax) {
  const SoftmaxLayer layer = testing::random_layer(800, 16, 1);
  const RowMajorMatrix H = testing::clustered_contexts(60, 16, 5, 2);
  const auto head = Certified::build(layer, H);
  const auto exact = Exact::make(layer);
  std::size_t decided = 0;
  for (Eigen::Index i = 0; i < H.rows(); ++i) {
    const TopK answer = head->query(H.row(i), {.k = 20});
    const TopK truth = exact->query(H.row(i), {.k = 20});
    for (const double p : {0.01, 0.1, 0.3, 0.5, 0.9, 0.999}) {
      const NucleusCheck found = check_nucleus(answer, p);
      if (found == NucleusCheck::unknown) continue;
      EXPECT_EQ(found, check_nucleus(truth, p));
      ++decided;
    }
  }
  EXPECT_GT(decided, 0U);
}

}  // namespace
}  // namespace topksoftmax
