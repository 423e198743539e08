// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

using kernels::Implementation;
using kernels::PrefixBlocks;

/// Blocks of random content, and their values in plain arrays.
struct RandomBlocks {
  RandomBlocks(std::size_t count, std::size_t width, unsigned seed) : engine(seed) {
    blocks.rows = count;
    blocks.width = width;
    storage.resize(blocks.bytes() + 64);
    void* start = storage.data();
    std::size_t space = storage.size();
    auto* const data = static_cast<std::byte*>(std::align(64, blocks.bytes(), start, space));
    blocks.data = data;
    for (std::size_t v = 0; v < blocks.blocks() * PrefixBlocks::kRows; ++v) {
      std::byte* const block = data + v / PrefixBlocks::kRows * blocks.block_bytes();
      const std::size_t r = v % PrefixBlocks::kRows;
      bias.push_back(std::uniform_real_distribution<float>(-5.0F, 5.0F)(engine));
      scale.push_back(put_bfloat16(block + 64 + 2 * r));
      radius.push_back(put_bfloat16(block + 96 + 2 * r));
      std::memcpy(block + 4 * r, &bias.back(), sizeof(float));
      for (std::size_t j = 0; j < width; ++j) {
        const int value = v % 7 == 0 ? (j % 2 == 0 ? 127 : -127) : static_cast<int>(engine() % 255) - 127;
        q.push_back(value);
        block[PrefixBlocks::kHeader + j / 4 * 64 + r * 4 + j % 4] = static_cast<std::byte>(value + 128);
      }
    }
  }

  float put_bfloat16(std::byte* p) {
    const auto x = std::uniform_real_distribution<float>(0.001F, 0.02F)(engine);
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    bits &= 0xffff0000U;
    const auto upper = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(p, &upper, sizeof(upper));
    float stored;
    std::memcpy(&stored, &bits, sizeof(stored));
    return stored;
  }

  std::mt19937 engine;
  PrefixBlocks blocks;
  std::vector<std::byte> storage;
  std::vector<float> bias, scale, radius;
  std::vector<int> q;
};

class PrefixKernels : public ::testing::TestWithParam<Implementation> {};

TEST_P(PrefixKernels, EstimatesAreTheIntegerProducts) {
  for (const std::size_t width : {4U, 8U, 16U, 60U, 256U}) {
    const RandomBlocks made(133, width, static_cast<unsigned>(width));
    std::mt19937 engine(3);
    std::vector<std::int16_t> n(width);
    for (std::size_t j = 0; j < width; ++j) {
      n[j] = static_cast<std::int16_t>(j % 5 == 0 ? (j % 2 == 0 ? 16256 : -16256)
                                                  : static_cast<int>(engine() % 32513) - 16256);
    }
    std::vector<float> estimates(144), radii(144);
    GetParam().prefix_bounds(made.blocks, {n.data(), 0.001F, 3.0F}, estimates.data(), radii.data());
    for (std::size_t v = 0; v < 133; ++v) {
      std::int64_t dot = 0;
      for (std::size_t j = 0; j < width; ++j) dot += static_cast<std::int64_t>(made.q[v * width + j]) * n[j];
      const double product = static_cast<double>(dot) * 0.001 * static_cast<double>(made.scale[v]);
      const double expected = product + static_cast<double>(made.bias[v]);
      ASSERT_NEAR(estimates[v], expected, 1e-6 * (std::abs(product) + 5.0));
      ASSERT_GE(static_cast<double>(radii[v]), 3.0 * static_cast<double>(made.radius[v]) * (1.0 - 1e-6));
      ASSERT_LE(static_cast<double>(radii[v]),
                3.0 * static_cast<double>(made.radius[v]) + 1e-5 * (std::abs(expected) + 1.0));
    }
  }
}

TEST_P(PrefixKernels, ReachingKeepsTiesAndWhatIsNoNumber) {
  std::vector<float> estimates(70, 0.0F);
  const std::vector<float> radii(70, 1.0F);
  estimates[3] = 1.0F;
  estimates[40] = std::numeric_limits<float>::quiet_NaN();
  estimates[68] = 5.0F;
  estimates[69] = 0.99F;
  std::vector<TokenId> ids(70);
  ASSERT_EQ(GetParam().reaching(estimates.data(), radii.data(), 70, 2.0F, ids.data()), 3U);
  EXPECT_EQ(ids[0], 3);
  EXPECT_EQ(ids[1], 40);
  EXPECT_EQ(ids[2], 68);
}

TEST_P(PrefixKernels, SumBoundsHoldTheSum) {
  for (const std::size_t count : {1U, 15U, 16U, 1000U, 10007U}) {
    for (const float shift : {0.0F, 30.0F, -40.0F, 5000.0F}) {
      Eigen::VectorXf estimates = testing::random_vector(static_cast<Eigen::Index>(count), 5, 6.0F);
      estimates.array() += shift - 20.0F;
      const Eigen::VectorXf radii =
          testing::random_vector(static_cast<Eigen::Index>(count), 6, shift > 1000.0F ? 0.0F : 0.5F)
              .cwiseAbs();
      double low = 0.0;
      double high = 0.0;
      for (Eigen::Index i = 0; i < estimates.size(); ++i) {
        const double x = static_cast<double>(estimates[i]) - static_cast<double>(shift);
        low += std::exp(x - static_cast<double>(radii[i]));
        high += std::exp(x + static_cast<double>(radii[i]));
      }
      const kernels::SumBounds sums = GetParam().sum_exp_bounds(estimates.data(), radii.data(), count, shift);
      EXPECT_LE(sums.low, low * (1.0 + 1e-12));
      EXPECT_GE(sums.high, high * (1.0 - 1e-12));
      EXPECT_GE(sums.low, low / 1.08);
      EXPECT_LE(sums.high, high * 1.08);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PrefixKernels,
                         ::testing::ValuesIn(std::vector<Implementation>(kernels::implementations().begin(),
                                                                         kernels::implementations().end())),
                         [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
