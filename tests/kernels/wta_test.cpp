// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

using kernels::WtaBands;
using kernels::detail::Implementation;

constexpr std::size_t kGroup = WtaBands::kGroup;

/// Bands that look at random positions.
struct RandomBands {
  RandomBands(std::size_t groups, std::size_t units, std::size_t K, std::size_t dim, unsigned seed) {
    std::mt19937 engine(seed);
    for (std::size_t i = 0; i < groups * units * K * kGroup; ++i)
      positions.push_back(static_cast<std::int32_t>(engine() % dim));
    bands = {positions.data(), groups, units, K};
  }

  std::uint32_t code(std::size_t w, const Eigen::VectorXf& x) const {
    std::size_t code = 0;
    for (std::size_t j = 0; j < bands.units; ++j) {
      const auto value = [&](std::size_t k) {
        return x[positions[((w / kGroup * bands.units + j) * bands.K + k) * kGroup + w % kGroup]];
      };
      std::size_t winner = 0;
      for (std::size_t k = 1; k < bands.K; ++k) {
        if (value(k) > value(winner)) winner = k;
      }
      code = code * bands.K + winner;
    }
    return static_cast<std::uint32_t>(code);
  }

  std::vector<std::int32_t> positions;
  WtaBands bands;
};

class WtaKernels : public ::testing::TestWithParam<Implementation> {
 protected:
  const Implementation& kernel() const { return GetParam(); }
};

TEST_P(WtaKernels, CodesAreThoseOfPlainLoopsForOneVectorAndForMany) {
  struct Size {
    std::size_t groups, units, K, dim;
  };
  for (const Size size : {Size{1, 1, 1, 1}, Size{2, 3, 8, 200}, Size{3, 3, 16, 33}, Size{1, 5, 2, 7},
                          Size{1, 10, 8, 64}, Size{2, 1, 100, 1500}}) {
    const RandomBands random(size.groups, size.units, size.K, size.dim, 4);
    const auto dim = static_cast<Eigen::Index>(size.dim);
    RowMajorMatrix vectors = testing::random_matrix(kGroup, dim, 9);
    vectors.row(1).setZero();
    vectors.row(2) = vectors.row(2).array().sign();  // many equal values: the first of them wins
    const std::size_t count = size.groups * kGroup;
    std::vector<std::uint32_t> together(count * kGroup);
    const RowMajorMatrix columns = vectors.transpose();
    kernel().wta_codes_batch(random.bands, columns.data(), together.data());
    std::vector<std::uint32_t> alone(count);
    for (std::size_t i = 0; i < kGroup; ++i) {
      const Eigen::VectorXf x = vectors.row(static_cast<Eigen::Index>(i));
      kernel().wta_codes(random.bands, x.data(), alone.data());
      for (std::size_t w = 0; w < count; ++w) {
        ASSERT_EQ(alone[w], random.code(w, x)) << "vector " << i << ", band " << w;
        ASSERT_EQ(together[w * kGroup + i], alone[w]) << "vector " << i << ", band " << w;
      }
    }
  }
}

TEST_P(WtaKernels, APartHasTheCodesOfItsGroups) {
  const RandomBands random(5, 3, 8, 50, 6);
  const Eigen::VectorXf x = testing::random_vector(50, 7);
  std::vector<std::uint32_t> all(5 * kGroup);
  kernel().wta_codes(random.bands, x.data(), all.data());
  std::vector<std::uint32_t> part(2 * kGroup);
  kernel().wta_codes(random.bands.part(2, 2), x.data(), part.data());
  EXPECT_EQ(part, std::vector<std::uint32_t>(all.begin() + 2 * kGroup, all.begin() + 4 * kGroup));
}

TEST_P(WtaKernels, MarksAreThoseThatReachTheThresholdAndThoseSetBefore) {
  std::mt19937 engine(3);
  for (const std::uint16_t threshold :
       std::initializer_list<std::uint16_t>{1, 2, 255, 256, 32767, 32768, 40000, 65535}) {
    for (const std::size_t words : {0U, 1U, 2U, 33U}) {
      std::vector<std::uint16_t> hits(64 * words);
      for (std::uint16_t& hit : hits) {
        hit = static_cast<std::uint16_t>(engine() % 4 == 0 ? engine() : threshold - 1 + engine() % 2);
      }
      std::vector<std::uint64_t> marks(words, 0x8000000000000001U);
      const std::size_t marked = kernel().mark_reaching(hits.data(), words, threshold, marks.data());
      std::size_t expected = 0;
      for (std::size_t i = 0; i < hits.size(); ++i) {
        const bool set = hits[i] >= threshold || i % 64 == 0 || i % 64 == 63;
        ASSERT_EQ((marks[i / 64] >> (i % 64) & 1) != 0, set) << i << " with " << hits[i];
        expected += set;
      }
      EXPECT_EQ(marked, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WtaKernels,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
