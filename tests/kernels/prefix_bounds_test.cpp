// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"

namespace topksoftmax {
namespace {

using kernels::PrefixBlocks;
using kernels::PrefixTails;
using kernels::detail::Implementation;

/// Zeros for blocks or tails in `storage`, aligned as they must be.
template <class Rows>
std::byte* make_room(std::vector<std::byte>& storage, Rows& rows) {
  storage.resize(rows.bytes() + 64);
  void* start = storage.data();
  std::size_t space = storage.size();
  auto* const data = static_cast<std::byte*>(std::align(64, rows.bytes(), start, space));
  rows.data = data;
  return data;
}

/// Blocks of random content, and their values in plain arrays.
struct RandomBlocks {
  RandomBlocks(std::size_t count, std::size_t width, unsigned seed) : engine(seed) {
    blocks.rows = count;
    blocks.width = width;
    std::byte* const data = make_room(storage, blocks);
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

TEST_P(PrefixKernels, ProductsAreExact) {
  for (const std::size_t width : {4U, 8U, 12U, 16U, 24U, 32U, 60U, 4096U, 16384U}) {
    RandomBlocks made(64, width, static_cast<unsigned>(width));
    for (std::size_t v = 0; v < 64; ++v) {  // estimates that are the products, rounded to floats
      constexpr std::uint16_t one = 0x3f80;
      auto* const block = const_cast<std::byte*>(made.blocks.data) + v / 16 * made.blocks.block_bytes();
      std::memset(block + 4 * (v % 16), 0, sizeof(float));
      std::memcpy(block + 64 + 2 * (v % 16), &one, sizeof(one));
    }
    const int largest = kernels::PrefixContext::largest(width);
    std::mt19937 engine(5);
    for (const bool extreme : {false, true}) {  // rows 0, 7, … are extreme too, with alternating signs
      std::vector<std::int16_t> n(width);
      for (std::size_t j = 0; j < width; ++j) {
        const int some = static_cast<int>(engine() % static_cast<unsigned>(2 * largest + 1)) - largest;
        n[j] = static_cast<std::int16_t>(!extreme ? some : j % 2 == 0 ? largest : -largest);
      }
      std::vector<float> estimates(64), radii(64);
      GetParam().prefix_bounds(made.blocks, {n.data(), 1.0F, 0.0F}, estimates.data(), radii.data());
      for (std::size_t v = 0; v < 64; ++v) {
        std::int64_t dot = 0;
        for (std::size_t j = 0; j < width; ++j)
          dot += static_cast<std::int64_t>(made.q[v * width + j]) * n[j];
        ASSERT_EQ(estimates[v], static_cast<float>(dot)) << "width " << width << ", row " << v;
      }
    }
  }
}

std::vector<std::int16_t> random_context(std::size_t width, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<std::int16_t> n(width);
  for (std::int16_t& x : n) x = static_cast<std::int16_t>(static_cast<int>(engine() % 32513) - 16256);
  return n;
}

/// Rows of random codes, and a context that meets them.
class RandomCodes {
 public:
  RandomCodes(std::size_t rows, std::size_t bits, std::size_t width, std::mt19937& engine, bool extreme)
      : bits_(bits), width_(width) {
    if (width == 0) return;
    const int largest = (1 << bits) - 1;
    for (std::size_t i = 0; i < rows * width; ++i) {
      const int pick = static_cast<int>(engine() % (1U << bits));
      u_.push_back(extreme ? (i / width + i % width) % 2 == 0 ? largest : 0 : pick);
    }
    int left = kernels::CodeContext::most_shifts(width);
    for (std::size_t segment = 0; segment < width / 32; ++segment) {
      const int shift = segment == 0 ? 0 : std::min(left, static_cast<int>(engine() % 4));
      shifts_.push_back(static_cast<std::uint8_t>(shift));
      left -= shift;
    }
    for (std::size_t j = 0; j < width; ++j) {
      const int some = static_cast<int>(engine() % 255) - 127;
      n_.push_back(static_cast<std::int8_t>(extreme ? j % 2 == 0 ? 127 : -127 : some));
    }
    offset_ = static_cast<std::int32_t>(engine() % 2001) - 1000;
  }

  /// Writes them where a block of PrefixBlocks has them, from byte `u` on.
  void write(std::byte* block, std::size_t row, std::size_t u) const {
    const std::size_t in_group = 32 / bits_;
    for (std::size_t j = 0; j < width_; ++j) {
      const auto shift = static_cast<int>(bits_ * (j % in_group / 4));
      block[u + j / in_group * 64 + row % 16 * 4 + j % 4] |=
          static_cast<std::byte>(u_[row * width_ + j] << shift);
    }
  }

  kernels::CodeContext context(float scale) const { return {n_.data(), shifts_.data(), scale, offset_}; }

  /// Σ_j (2u − 2^bits + 1)·n_j − offset with all shifts, for one row.
  std::int64_t product(std::size_t v) const {
    if (width_ == 0) return 0;
    std::int64_t dot = -offset_;
    for (std::size_t j = 0; j < width_; ++j) {
      int halvings = 0;
      for (std::size_t segment = j / 32 + 1; segment < shifts_.size(); ++segment)
        halvings += shifts_[segment];
      dot += (static_cast<std::int64_t>(n_[j]) << halvings) * (2 * u_[v * width_ + j] - (1 << bits_) + 1);
    }
    return dot;
  }

 private:
  std::size_t bits_;
  std::size_t width_;
  std::vector<int> u_;
  std::vector<std::int8_t> n_;
  std::vector<std::uint8_t> shifts_;
  std::int32_t offset_ = 0;
};

/// Blocks of rows of four ones in int8, and random codes behind them. All scales and radii are 1.
struct CodedBlocks {
  CodedBlocks(std::size_t rows, std::size_t int4_width, std::size_t int2_width, bool extreme)
      : engine(static_cast<unsigned>(int4_width + 7 * int2_width)),
        int4(rows, 4, int4_width, engine, extreme),
        int2(rows, 2, int2_width, engine, extreme) {
    blocks = {.rows = rows, .width = 4, .int4_width = int4_width, .int2_width = int2_width};
    std::byte* const data = make_room(storage, blocks);
    const std::size_t header = int2_width > 0 ? 224 : 192;
    const std::size_t q = (header + 63) / 64 * 64;
    for (std::size_t v = 0; v < rows; ++v) {
      std::byte* const block = data + v / 16 * (q + 64 + 8 * int4_width + 4 * int2_width);
      constexpr std::uint16_t kOne = 0x3f80;
      for (std::size_t at = 64; at < header; at += 32)
        std::memcpy(block + at + 2 * (v % 16), &kOne, sizeof(kOne));
      for (std::size_t j = 0; j < 4; ++j) block[q + v % 16 * 4 + j] = std::byte{129};
      int4.write(block, v, q + 64);
      int2.write(block, v, q + 64 + 8 * int4_width);
    }
  }

  std::mt19937 engine;
  RandomCodes int4;
  RandomCodes int2;
  PrefixBlocks blocks;
  std::vector<std::byte> storage;
};

TEST_P(PrefixKernels, ProductsOfCodesAreExact) {
  const std::vector<std::int16_t> int8 = {3, -5, 7, 11};  // rows of ones: 16
  for (const auto& [int4, int2] : {std::pair{32U, 0U},
                                   {64U, 0U},
                                   {96U, 0U},
                                   {992U, 0U},
                                   {4096U, 0U},
                                   {16384U, 0U},
                                   {0U, 32U},
                                   {0U, 96U},
                                   {0U, 4064U},
                                   {0U, 16352U},
                                   {160U, 832U},
                                   {32U, 64U}}) {
    for (const bool extreme : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << int4 << " in four bits, " << int2 << " in two, extreme " << extreme);
      const CodedBlocks made(133, int4, int2, extreme);
      kernels::PrefixContext context = {.n = int8.data(), .scale = 1.0F, .radius = 0.5F};
      if (int4 > 0) context.int4 = made.int4.context(0.5F);
      if (int2 > 0) context.int2 = made.int2.context(0.25F);
      context.code_radius = 2.0F;
      std::vector<float> estimates(144), radii(144);
      GetParam().prefix_bounds(made.blocks, context, estimates.data(), radii.data());
      for (std::size_t v = 0; v < 133; ++v) {
        const float of_int4 = 0.5F * static_cast<float>(made.int4.product(v));
        const float of_int2 = 0.25F * static_cast<float>(made.int2.product(v));
        ASSERT_EQ(estimates[v], (16.0F + of_int4) + of_int2) << "row " << v;
        const float sizes = 16.0F + std::abs(of_int4) + std::abs(of_int2);
        const float radius = 2.5F + PrefixBlocks::kRounding * sizes;
        ASSERT_NEAR(radii[v], radius, 1e-6F * radius) << "row " << v;
      }
      const std::vector<TokenId> some = {8, 3};
      std::vector<float> some_estimates(32), some_radii(32);
      GetParam().prefix_bounds_gathered(made.blocks, some.data(), some.size(), context, some_estimates.data(),
                                        some_radii.data());
      for (std::size_t i = 0; i < 32; ++i) {
        const std::size_t v = static_cast<std::size_t>(some[i / 16]) * 16 + i % 16;
        if (v >= 133) continue;
        ASSERT_EQ(some_estimates[i], estimates[v]);
        ASSERT_EQ(some_radii[i], radii[v]);
      }
      PrefixBlocks part_of_many = made.blocks;  // which asks for what lies behind it
      part_of_many.whole_bytes = std::size_t{1} << 40;
      std::vector<float> same_estimates(144), same_radii(144);
      GetParam().prefix_bounds(part_of_many, context, same_estimates.data(), same_radii.data());
      ASSERT_EQ(same_estimates, estimates);
      ASSERT_EQ(same_radii, radii);
    }
  }
}

/// Bounds of some contexts, asked for together, and of each alone.
void expect_batch_as_alone(const Implementation& kernel, const PrefixBlocks& blocks,
                           const std::vector<kernels::PrefixContext>& contexts) {
  const std::size_t room = blocks.blocks() * PrefixBlocks::kRows;
  std::vector<float> estimates(contexts.size() * room), radii(contexts.size() * room);
  std::vector<kernels::PrefixProducts> batch;
  for (std::size_t q = 0; q < contexts.size(); ++q) {
    batch.push_back({contexts[q], estimates.data() + q * room, radii.data() + q * room});
  }
  kernel.prefix_bounds_batch(blocks, batch.data(), batch.size());
  std::vector<float> estimates_alone(room), radii_alone(room);
  for (std::size_t q = 0; q < contexts.size(); ++q) {
    kernel.prefix_bounds(blocks, contexts[q], estimates_alone.data(), radii_alone.data());
    for (std::size_t v = 0; v < blocks.rows; ++v) {
      ASSERT_EQ(batch[q].estimates[v], estimates_alone[v]) << "context " << q << ", row " << v;
      ASSERT_EQ(batch[q].radii[v], radii_alone[v]) << "context " << q << ", row " << v;
    }
  }
}

TEST_P(PrefixKernels, BatchesAreBoundedAsSingleContextsAre) {
  // Up to and beyond a tile's 64 coordinates, blocks of any number, and more than one part of them.
  for (const std::size_t width : {4U, 16U, 60U, 64U, 68U, 256U, 516U, 4100U, 16384U}) {
    for (const std::size_t rows : {1U, 16U, 17U, 133U, 2500U}) {
      if (width * rows > 3'000'000) continue;
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << width);
      const RandomBlocks made(rows, width, static_cast<unsigned>(width));
      const int largest = kernels::PrefixContext::largest(width);
      for (const std::size_t count : {1U, 2U, 3U, 7U, 8U}) {
        std::vector<std::vector<std::int16_t>> n;
        std::vector<kernels::PrefixContext> contexts;
        for (std::size_t q = 0; q < count; ++q) {
          n.push_back(random_context(width, static_cast<unsigned>(q)));
          for (std::size_t j = 0; j < width; ++j) {
            n[q][j] = static_cast<std::int16_t>(q == 1 ? (j % 2 == 0 ? largest : -largest)
                                                       : n[q][j] % (largest + 1));
          }
          const auto size = static_cast<float>(q + 1);
          contexts.push_back({.n = n[q].data(), .scale = 0.001F * size, .radius = size});
        }
        ASSERT_NO_FATAL_FAILURE(expect_batch_as_alone(GetParam(), made.blocks, contexts));
      }
    }
  }
}

TEST_P(PrefixKernels, BatchesMeetCodesAsSingleContextsDo) {
  const std::vector<std::int16_t> int8 = {3, -5, 7, 11};
  for (const auto& [int4, int2] : {std::pair{32U, 0U},
                                   {64U, 0U},  // whose steps may be halved eleven times
                                   {992U, 0U},
                                   {4096U, 0U},  // more than the tiles of contexts
                                   {0U, 96U},
                                   {0U, 4032U},
                                   {160U, 832U},
                                   {512U, 512U}}) {
    for (const bool extreme : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << int4 << " in four bits, " << int2 << " in two, extreme " << extreme);
      const CodedBlocks made(133, int4, int2, extreme);
      std::mt19937 engine(9);
      std::vector<std::pair<RandomCodes, RandomCodes>> codes;
      for (std::size_t q = 0; q < kernels::kPrefixBatch; ++q) {
        codes.emplace_back(RandomCodes(0, 4, int4, engine, extreme && q % 2 == 0),
                           RandomCodes(0, 2, int2, engine, extreme && q % 2 == 0));
      }
      std::vector<kernels::PrefixContext> contexts;
      for (const auto& [of_int4, of_int2] : codes) {
        const auto size = static_cast<float>(contexts.size() + 1);
        kernels::PrefixContext context = {.n = int8.data(), .scale = size, .radius = 0.5F * size};
        if (int4 > 0) context.int4 = of_int4.context(0.7F * size);
        if (int2 > 0) context.int2 = of_int2.context(0.3F);
        context.code_radius = 2.0F;
        contexts.push_back(context);
      }
      ASSERT_NO_FATAL_FAILURE(expect_batch_as_alone(GetParam(), made.blocks, contexts));
    }
  }
}

TEST(PrefixBlocks, PartsFillCachesWhereTheWholeDoes) {
  PrefixBlocks blocks = {.rows = PrefixBlocks::kRows * 250, .width = 4096};
  const std::vector<std::byte> storage(blocks.bytes());
  blocks.data = storage.data();
  EXPECT_FALSE(blocks.fill_caches());
  EXPECT_FALSE(blocks.part(0, 250).fill_caches());
  blocks.rows = PrefixBlocks::kRows * 300;  // of which the storage has some
  EXPECT_TRUE(blocks.fill_caches());
  EXPECT_TRUE(blocks.part(3, 1).fill_caches());
  EXPECT_TRUE(blocks.part(3, 20).part(2, 1).fill_caches());
}

TEST_P(PrefixKernels, SomeBlocksAreBoundedAsAllAre) {
  for (const std::size_t width : {4U, 16U, 60U}) {
    const RandomBlocks made(133, width, static_cast<unsigned>(width));
    const std::vector<std::int16_t> n = random_context(width, 4);
    const kernels::PrefixContext context = {n.data(), 0.001F, 3.0F};
    std::vector<float> estimates(144), radii(144), some_estimates(48), some_radii(48);
    GetParam().prefix_bounds(made.blocks, context, estimates.data(), radii.data());
    const std::vector<TokenId> blocks = {7, 0, 8};
    GetParam().prefix_bounds_gathered(made.blocks, blocks.data(), blocks.size(), context,
                                      some_estimates.data(), some_radii.data());
    for (std::size_t i = 0; i < 48; ++i) {
      const std::size_t row = static_cast<std::size_t>(blocks[i / 16]) * 16 + i % 16;
      if (row >= 133) continue;
      ASSERT_EQ(some_estimates[i], estimates[row]);
      ASSERT_EQ(some_radii[i], radii[row]);
    }
  }
}

TEST_P(PrefixKernels, BoxesReachAsFarAsTheirCentresAndSpreads) {
  for (const std::size_t width : {4U, 8U, 16U, 24U, 32U, 60U}) {
    const RandomBlocks centres(37, width, static_cast<unsigned>(width));
    RandomBlocks spreads(37, width, static_cast<unsigned>(width) + 1);
    for (std::size_t v = 0; v < 48; ++v) {  // spreads have no sign
      for (std::size_t j = 0; j < width; ++j) {
        int& q = spreads.q[v * width + j];
        q = std::abs(q);
        auto* const block =
            const_cast<std::byte*>(spreads.blocks.data) + v / 16 * spreads.blocks.block_bytes();
        block[PrefixBlocks::kHeader + j / 4 * 64 + v % 16 * 4 + j % 4] = static_cast<std::byte>(q + 128);
      }
    }
    const std::vector<std::int16_t> n = random_context(width, 4);
    std::vector<std::int16_t> magnitudes;
    for (const std::int16_t x : n) magnitudes.push_back(static_cast<std::int16_t>(std::abs(x)));
    std::vector<float> estimates(48), radii(48);
    GetParam().box_bounds({centres.blocks, spreads.blocks}, {n.data(), 0.001F, 3.0F}, magnitudes.data(),
                          estimates.data(), radii.data());
    for (std::size_t box = 0; box < 37; ++box) {
      double middle = 0.0;
      double half = 0.0;
      for (std::size_t j = 0; j < width; ++j) {
        middle += 0.001 * n[j] * static_cast<double>(centres.scale[box]) * centres.q[box * width + j];
        half += 0.001 * magnitudes[j] * static_cast<double>(spreads.scale[box]) * spreads.q[box * width + j];
      }
      const auto bias = static_cast<double>(centres.bias[box]);
      const double radius = 3.0 * static_cast<double>(centres.radius[box]) + half;
      const double size = std::abs(middle) + std::abs(bias) + radius;
      ASSERT_NEAR(estimates[box], middle + bias, 1e-6 * size);
      // From outside, and close.
      const double reach = static_cast<double>(estimates[box]) + static_cast<double>(radii[box]);
      ASSERT_GE(reach, middle + bias + radius - 1e-7 * size);
      ASSERT_LE(reach, middle + bias + radius + 1e-5 * size);
    }
  }
}

/// A block of one row, and rows that fill it up.
struct OneRow {
  OneRow(float bias, float scale, int q) {
    blocks.rows = 1;
    blocks.width = 4;
    std::byte* const block = make_room(storage, blocks);
    std::memcpy(block, &bias, sizeof(bias));
    const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scale) >> 16);
    std::memcpy(block + 64, &upper, sizeof(upper));
    for (std::size_t j = 0; j < 4; ++j) block[PrefixBlocks::kHeader + j] = static_cast<std::byte>(q + 128);
  }

  PrefixBlocks blocks;
  std::vector<std::byte> storage;
};

TEST_P(PrefixKernels, RadiiHoldWhatIsTooSmallForFloats) {
  // 4·100·1000·2⁻¹⁶⁰ is no float, and is more than nothing.
  const OneRow made(0.0F, 0x1p-100F, 100);
  const std::vector<std::int16_t> n(4, 1000);
  std::vector<float> estimates(16), radii(16);
  GetParam().prefix_bounds(made.blocks, {n.data(), 0x1p-60F, 0.0F}, estimates.data(), radii.data());
  constexpr double kProduct = 4.0 * 100.0 * 1000.0 * 0x1p-160;
  EXPECT_GE(static_cast<double>(estimates[0]) + static_cast<double>(radii[0]), kProduct);

  kernels::PrefixTails tails;
  tails.rows = 1;
  tails.width = 1;
  std::vector<std::byte> storage;
  std::byte* const data = make_room(storage, tails);
  tails.put_footer(data, {0.0F, 0x1p-80F});
  const std::vector<std::int16_t> of_tail(tails.row_bytes(), 0);
  const TokenId id = 0;
  float estimate = 0.0F;
  float radius = 0.0F;
  GetParam().tail_bounds(tails, {of_tail.data(), 1.0F, 0x1p-80F}, &id, 1, &estimate, &radius);
  EXPECT_GE(static_cast<double>(radius), 0x1p-160);
}

TEST_P(PrefixKernels, RadiiHoldTheLargestSumOfTheSmallestProducts) {
  // Half of the least float rounds to nothing, and meets a sum of almost 2³¹.
  constexpr std::size_t kWidth = 1024;
  const std::int32_t most = kernels::PrefixContext::largest(kWidth);
  const double product = 0x1p-150 * 127.0 * most * kWidth;
  PrefixBlocks blocks;
  blocks.rows = 1;
  blocks.width = kWidth;
  std::vector<std::byte> storage;
  std::byte* const block = make_room(storage, blocks);
  const auto scale = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(0x1p-81F) >> 16);
  std::memcpy(block + 64, &scale, sizeof(scale));
  std::fill(block + blocks.q_offset(), block + blocks.block_bytes(), std::byte{255});
  const std::vector<std::int16_t> n(kWidth, static_cast<std::int16_t>(most));
  std::vector<float> estimates(16), radii(16);
  GetParam().prefix_bounds(blocks, {n.data(), 0x1p-69F, 0.0F}, estimates.data(), radii.data());
  EXPECT_GE(static_cast<double>(estimates[0]) + static_cast<double>(radii[0]), product);
  GetParam().prefix_bounds(blocks, {n.data(), 0x1p81F, 0.0F}, estimates.data(), radii.data());
  EXPECT_NEAR(static_cast<double>(estimates[0]), std::ldexp(product, 150), 1e3);
}

TEST_P(PrefixKernels, RadiiHoldWhatLargeBiasesRound) {
  // 3 more than 2²⁶ is no float: it is an eighth of the way from one to the next.
  constexpr double kLogit = 0x1p26 + 3.0;
  const OneRow row(0x1p26F, 1.0F, 1);
  const OneRow none(0.0F, 0.0F, 0);
  const std::vector<std::int16_t> n = {3, 0, 0, 0};
  std::vector<float> estimates(16), radii(16);
  GetParam().prefix_bounds(row.blocks, {n.data(), 1.0F, 0.0F}, estimates.data(), radii.data());
  EXPECT_GE(static_cast<double>(estimates[0]) + static_cast<double>(radii[0]), kLogit);
  GetParam().box_bounds({row.blocks, none.blocks}, {n.data(), 1.0F, 0.0F}, n.data(), estimates.data(),
                        radii.data());
  EXPECT_GE(static_cast<double>(estimates[0]) + static_cast<double>(radii[0]), kLogit);
}

TEST_P(PrefixKernels, TailsAddTheirProducts) {
  for (const std::size_t width : {1U, 40U, 56U, 57U, 200U, 1000U}) {
    constexpr std::size_t count = 50;
    kernels::PrefixTails tails;
    tails.rows = count;
    tails.width = width;
    std::vector<std::byte> storage;
    std::byte* const data = make_room(storage, tails);
    std::mt19937 engine(static_cast<unsigned>(width));
    std::vector<std::vector<int>> q(count, std::vector<int>(width));
    std::vector<float> scale, radius;
    for (std::size_t v = 0; v < count; ++v) {
      std::byte* const row = data + v * tails.row_bytes();
      for (std::size_t j = 0; j < width; ++j) {
        q[v][j] = static_cast<int>(engine() % 255) - 127;
        row[j] = static_cast<std::byte>(q[v][j]);
      }
      scale.push_back(std::uniform_real_distribution<float>(0.001F, 0.02F)(engine));
      radius.push_back(std::uniform_real_distribution<float>(0.001F, 0.02F)(engine));
      std::memcpy(row + tails.row_bytes() - 8, &scale[v], sizeof(float));
      std::memcpy(row + tails.row_bytes() - 4, &radius[v], sizeof(float));
    }
    constexpr float kStep = 0.7e-4F;
    const std::int32_t most = kernels::PrefixContext::largest(width);
    std::vector<std::int16_t> n(tails.row_bytes(), 0);
    for (std::size_t j = 0; j < width; ++j) {
      n[j] = static_cast<std::int16_t>(std::uniform_int_distribution<std::int32_t>(-most, most)(engine));
    }
    const Eigen::VectorXf before = testing::random_vector(count, 4, 3.0F);
    for (const std::size_t asked : {1U, 16U, 37U}) {
      std::vector<TokenId> ids(asked);
      for (TokenId& id : ids) id = static_cast<TokenId>(engine() % count);
      std::vector<float> estimates(asked), radii(asked);
      for (std::size_t i = 0; i < asked; ++i) estimates[i] = before[ids[i]];
      GetParam().tail_bounds(tails, {n.data(), kStep, 2.0F}, ids.data(), asked, estimates.data(),
                             radii.data());
      for (std::size_t i = 0; i < asked; ++i) {
        const auto v = static_cast<std::size_t>(ids[i]);
        double product = 0.0;
        double size = 0.0;
        for (std::size_t j = 0; j < width; ++j) {
          product += q[v][j] * static_cast<double>(kStep) * n[j];
          size += std::abs(q[v][j] * static_cast<double>(kStep) * n[j]);
        }
        const double expected = static_cast<double>(before[ids[i]]) + static_cast<double>(scale[v]) * product;
        ASSERT_NEAR(estimates[i], expected, 1e-6 * (size * static_cast<double>(scale[v]) + 3.0));
        ASSERT_GE(static_cast<double>(radii[i]), 2.0 * static_cast<double>(radius[v]) * (1.0 - 1e-6));
        ASSERT_LE(static_cast<double>(radii[i]), 2.0 * static_cast<double>(radius[v]) + 1e-4);
      }
    }
  }
}

TEST_P(PrefixKernels, TailsHoldTheLargestSums) {
  for (const std::size_t width : {std::size_t{1024}, kernels::kMaxWidth}) {
    kernels::PrefixTails tails;
    tails.rows = 1;
    tails.width = width;
    std::vector<std::byte> storage;
    std::byte* const row = make_room(storage, tails);
    std::fill_n(row, width, std::byte{127});
    const std::int32_t most = kernels::PrefixContext::largest(width);
    std::vector<std::int16_t> n(tails.row_bytes(), 0);
    const TokenId id = 0;
    for (const int sign : {1, -1}) {
      std::fill_n(n.begin(), width, static_cast<std::int16_t>(sign * most));
      const double sum = sign * 127.0 * most * static_cast<double>(width);
      float estimate = 0.0F;
      float radius = 0.0F;
      tails.put_footer(row, {1.0F, 0.0F});
      GetParam().tail_bounds(tails, {n.data(), 1.0F, 0.0F}, &id, 1, &estimate, &radius);
      EXPECT_NEAR(static_cast<double>(estimate), sum, std::abs(sum) * 0x1p-24) << width;
      // What is left of half of the least float, that many times.
      estimate = 0.0F;
      tails.put_footer(row, {0x1p-81F, 0.0F});
      GetParam().tail_bounds(tails, {n.data(), 0x1p-69F, 0.0F}, &id, 1, &estimate, &radius);
      EXPECT_LE(std::abs(static_cast<double>(estimate) - 0x1p-150 * sum), static_cast<double>(radius));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PrefixKernels,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
