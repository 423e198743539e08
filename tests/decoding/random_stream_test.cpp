// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/random_stream.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

// All expected values are those of another implementation, in Python: of Matsumoto and Nishimura's
// mt19937-64.c, and for tokens of SplitMix64, the Gumbels of TokenGumbels and the largest logit/temperature +
// Gumbel.

std::vector<std::uint64_t> first_bits(std::uint64_t seed, std::size_t count) {
  RandomStream random(seed);
  std::vector<std::uint64_t> bits;
  while (bits.size() < count) bits.push_back(random.bits());
  return bits;
}

TEST(RandomStream, GivesTheSameBitsForASeedEverywhere) {
  using Bits = std::vector<std::uint64_t>;
  EXPECT_EQ(first_bits(0, 3), (Bits{0x28E837C5CB41DC3EU, 0xFDFD3A7C3E40F98BU, 0x0A213217F032E8B9U}));
  EXPECT_EQ(first_bits(42, 3), (Bits{0xC151DF7D6EE5E2D6U, 0xA3978FB9B92502A8U, 0xC08C967F0E5E7B0AU}));
  EXPECT_EQ(first_bits(UINT64_MAX, 3), (Bits{0x06A24A7A23FBC864U, 0xB7C9110662DD4544U, 0x09D7B66719355997U}));
  EXPECT_EQ(first_bits(42, 1000).back(), 0x3522E3F37B6AA2A0U);
  RandomStream unseeded;
  EXPECT_EQ(unseeded.bits(), 0x28E837C5CB41DC3EU);
}

TEST(RandomStream, GivesTheSameNumbersForASeedEverywhere) {
  RandomStream random(42);
  EXPECT_EQ(random.uniform(), 0x1.82a3befaddcbcp-1);
  EXPECT_EQ(random.uniform(), 0x1.472f1f73724a0p-1);
  EXPECT_EQ(random.bits(), 0xC08C967F0E5E7B0AU) << "each takes 64 bits";
  RandomStream largest(UINT64_MAX);
  EXPECT_EQ(largest.uniform(), 0x1.a8929e88fef20p-6);
}

/// A layer and a context of small fractions: every order of additions gives the same logits.
struct Small {
  static constexpr Eigen::Index kVocab = 500;
  static constexpr Eigen::Index kDim = 16;

  SoftmaxLayer layer() const {
    RowMajorMatrix W(kVocab, kDim);
    Eigen::VectorXf b(kVocab);
    for (Eigen::Index v = 0; v < kVocab; ++v) {
      for (Eigen::Index j = 0; j < kDim; ++j) {
        W(v, j) = static_cast<float>((37 * v + 11 * j + v * j * j) % 17 - 8) / 16.0F;
      }
      b[v] = -static_cast<float>(v % 7) / 4.0F;
    }
    return SoftmaxLayer::own(W, b);
  }
  Eigen::VectorXf context() const {
    Eigen::VectorXf h(kDim);
    for (Eigen::Index j = 0; j < kDim; ++j) h[j] = static_cast<float>(5 * j % 9 - 4) / 2.0F;
    return h;
  }
};

TEST(RandomStream, ItsSeedGivesTheSameTokensEverywhere) {
  const Small small;
  const Fused fused(small.layer());
  const auto certified = Certified::build(small.layer());
  struct Case {
    double temperature;
    std::vector<TokenId> tokens;
  };
  const Case cases[] = {
      {1.0, {371, 473, 303, 184, 177, 41, 388, 337, 364, 133, 330, 476}},
      {0.5, {371, 473, 303, 184, 14, 337, 133, 14, 364, 133, 133, 337}},
  };
  for (const TopKSoftmax* head :
       {static_cast<const TopKSoftmax*>(&fused), static_cast<const TopKSoftmax*>(certified.get())}) {
    for (const Case& one : cases) {
      Sampler sampler({.temperature = one.temperature});
      RandomStream random(42);
      std::vector<TokenId> drawn;
      while (drawn.size() < one.tokens.size()) {
        drawn.push_back(sampler.draw(*head, small.context(), random).id);
      }
      EXPECT_EQ(drawn, one.tokens) << head->name() << " at " << one.temperature;
      EXPECT_EQ(sampler.full_scans() == drawn.size(), head->exhaustive()) << "bounds tell of draws";
    }
  }
}

}  // namespace
}  // namespace topksoftmax
