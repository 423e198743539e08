// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/wta/wta_hash.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/wta_reference.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

std::vector<std::uint32_t> codes_of(const WtaHash& hash, const Eigen::VectorXf& x) {
  std::vector<std::uint32_t> codes(hash.padded_bands());
  hash.band_codes(x.data(), codes.data());
  codes.resize(hash.bands());
  return codes;
}

TEST(WtaHash, CodesAreTheWinnersAsDigits) {
  for (const WtaHashOptions& options :
       {WtaHashOptions{}, WtaHashOptions{.K = 16}, WtaHashOptions{.K = 3, .units_per_band = 5, .bands = 37},
        WtaHashOptions{.K = 2, .units_per_band = 30, .bands = 1}}) {
    for (const Eigen::Index dim : {1, 5, 24, 200}) {
      const auto size = static_cast<std::size_t>(dim);
      const WtaHash hash(size, options);
      const testing::WtaReference reference(size, options);
      const Eigen::VectorXf x = testing::random_vector(dim, 4);
      const auto codes = codes_of(hash, x);
      const auto bands = reference.bands(x);
      for (std::size_t w = 0; w < codes.size(); ++w) {
        std::size_t code = 0;
        for (const std::size_t winner : bands[w]) code = code * std::min(options.K, size) + winner;
        ASSERT_EQ(codes[w], code) << "K = " << options.K << ", d = " << dim << ", band " << w;
      }
    }
  }
}

TEST(WtaHash, OnlyTheOrderOfTheValuesMatters) {
  const WtaHash hash(50, {.K = 16});
  const Eigen::VectorXf x = testing::random_vector(50, 7);
  const auto codes = codes_of(hash, x);
  EXPECT_EQ(codes_of(hash, x * 1e-30F), codes);
  EXPECT_EQ(codes_of(hash, x * 1e30F), codes);
  EXPECT_EQ(codes_of(hash, x.array() * 3.0F + 5.0F), codes);
  EXPECT_EQ(codes_of(hash, x.array().exp()), codes);
  EXPECT_EQ(codes_of(hash, x.array().cube()), codes);
  EXPECT_NE(codes_of(hash, -x), codes);
}

TEST(WtaHash, MoreAlikeVectorsShareMoreCodes) {
  const WtaHash hash(100, {});
  const Eigen::VectorXf x = testing::random_vector(100, 1);
  const Eigen::VectorXf noise = testing::random_vector(100, 2);
  std::size_t previous = hash.bands() + 1;
  for (const float share : {0.0F, 0.1F, 0.5F, 2.0F}) {
    const auto a = codes_of(hash, x);
    const auto b = codes_of(hash, x + share * noise);
    std::size_t equal = 0;
    for (std::size_t w = 0; w < a.size(); ++w) equal += a[w] == b[w];
    EXPECT_LT(equal, previous) << share;
    previous = equal;
  }
}

TEST(WtaHash, PermutationsAreDistinctPlacesEachOfItsOwn) {
  const WtaHash hash(40, {.K = 16, .bands = 100});
  std::set<std::vector<std::int32_t>> all;
  std::vector<std::size_t> uses(40);
  for (std::size_t p = 0; p < 300; ++p) {
    const auto places = hash.permutation(p);
    EXPECT_EQ(std::set<std::int32_t>(places.begin(), places.end()).size(), 16U);
    for (const std::int32_t place : places) ++uses.at(static_cast<std::size_t>(place));
    all.insert(places);
  }
  EXPECT_EQ(all.size(), 300U);
  for (const std::size_t n : uses) EXPECT_NEAR(static_cast<double>(n), 120.0, 60.0);
}

TEST(WtaHash, TheSeedDecides) {
  const Eigen::VectorXf x = testing::random_vector(40, 7);
  EXPECT_EQ(codes_of(WtaHash(40, {.seed = 5}), x), codes_of(WtaHash(40, {.seed = 5}), x));
  EXPECT_NE(codes_of(WtaHash(40, {.seed = 5}), x), codes_of(WtaHash(40, {.seed = 6}), x));
}

TEST(WtaHash, VectorsTogetherHaveTheCodesThatEachHasAlone) {
  const WtaHash hash(33, {.bands = 50});
  const RowMajorMatrix vectors = testing::random_matrix(12, 40, 3);
  std::vector<float> columns(33 * WtaHash::kGroup);
  std::vector<std::uint32_t> together(hash.padded_bands() * WtaHash::kGroup);
  hash.band_codes_batch(vectors.data(), 40, 12, columns.data(), together.data());
  for (Eigen::Index i = 0; i < 12; ++i) {
    const auto alone = codes_of(hash, vectors.row(i).head(33));
    for (std::size_t w = 0; w < alone.size(); ++w) {
      ASSERT_EQ(together[w * WtaHash::kGroup + static_cast<std::size_t>(i)], alone[w]);
    }
  }
}

TEST(WtaHash, RefusesUnusableOptions) {
  const auto refuses = [](const WtaHashOptions& options, const std::string& part) {
    EXPECT_THAT(error_of([&] { const WtaHash hash(20, options); }), HasSubstr(part));
  };
  refuses({.K = 0}, "K is 0");
  refuses({.K = 1}, "K is 1");
  refuses({.units_per_band = 0}, "units_per_band is 0");
  refuses({.bands = 0}, "bands is 0");
  refuses({.bands = 65536}, "bands is 65536");
  refuses({.K = 2, .units_per_band = 31}, "must be below 31");
  refuses({.K = 8, .units_per_band = 11}, "must be below 31");
  refuses({.K = 1291, .units_per_band = 3}, "K = 1291");
  refuses({.K = 16, .units_per_band = 1000000000}, "must be below 31");
}

TEST(WtaHash, IsTheSameFromItsPositions) {
  const WtaHashOptions options = {.K = 5, .units_per_band = 2, .bands = 37};
  const WtaHash hash(20, options);
  const WtaHash again(20, options, hash.positions());
  const Eigen::VectorXf x = testing::random_vector(20, 4);
  EXPECT_EQ(codes_of(again, x), codes_of(hash, x));
  EXPECT_EQ(again.compared(), 5U);
  EXPECT_THROW(WtaHash(19, options, hash.positions()), Error) << "some position is 19";
  EXPECT_THROW(WtaHash(4, options, hash.positions()), Error);
  EXPECT_THROW(WtaHash(20, {.K = 5, .units_per_band = 2, .bands = 49}, hash.positions()), Error);
}

TEST(WtaHash, AcceptsCodesOfAlmost31Bits) {
  EXPECT_NO_THROW(WtaHash(20, {.K = 2, .units_per_band = 30, .bands = 2}));
  EXPECT_NO_THROW(WtaHash(20, {.K = 8, .units_per_band = 10, .bands = 2}));
  EXPECT_NO_THROW(WtaHash(20, {.K = 1290, .units_per_band = 3, .bands = 2}));
}

}  // namespace
}  // namespace topksoftmax
