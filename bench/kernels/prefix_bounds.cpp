// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/registration.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::bench {
namespace {

/// Coordinates of a row in int8, and more of them in codes.
struct Widths {
  std::size_t int8;
  std::size_t int4;
  std::size_t int2;
};

/// Blocks with zero biases, small scales and radii, and random prefixes.
kernels::PrefixBlocks fill(ScratchBuffer& storage, Widths widths, std::size_t bytes) {
  kernels::PrefixBlocks blocks;
  blocks.width = widths.int8;
  blocks.int4_width = widths.int4;
  blocks.int2_width = widths.int2;
  blocks.rows = bytes / blocks.block_bytes() * kernels::PrefixBlocks::kRows;
  auto* const data = storage.get<std::byte>(blocks.bytes());
  blocks.data = data;
  std::mt19937 engine(1);
  constexpr std::uint16_t kSmall = 0x3c00;  // 1/128 as bfloat16
  for (std::size_t block = 0; block < blocks.blocks(); ++block) {
    std::byte* const start = data + block * blocks.block_bytes();
    std::memset(start, 0, kernels::PrefixBlocks::kRows * sizeof(float));
    for (std::size_t i = kernels::PrefixBlocks::kRows * sizeof(float); i < blocks.q_offset(); i += 2) {
      std::memcpy(start + i, &kSmall, sizeof(kSmall));
    }
    for (std::size_t i = blocks.q_offset(); i < blocks.block_bytes(); ++i) {
      start[i] = static_cast<std::byte>(engine());
    }
  }
  return blocks;
}

template <std::size_t int8, std::size_t int4, std::size_t int2, std::size_t contexts = 1>
void prefix_bounds(benchmark::State& state, const kernels::detail::Implementation& kernel,
                   std::size_t bytes) {
  ScratchBuffer storage;
  const kernels::PrefixBlocks blocks = fill(storage, {int8, int4, int2}, bytes);
  std::vector<std::int16_t> n(int8, 1234);
  std::vector<std::int8_t> bytes_of_context(std::max(int4, int2), 12);
  std::vector<std::uint8_t> shifts(bytes_of_context.size() / kernels::CodeContext::kSegment, 0);
  const kernels::CodeContext codes = {.n = bytes_of_context.data(), .shifts = shifts.data(), .scale = 1e-3F};
  const kernels::PrefixContext context{
      .n = n.data(), .scale = 1e-3F, .radius = 1.0F, .int4 = codes, .int2 = codes, .code_radius = 1.0F};
  const std::size_t room = blocks.blocks() * kernels::PrefixBlocks::kRows;
  std::vector<float> estimates(contexts * room);
  std::vector<float> radii(estimates.size());
  std::vector<kernels::PrefixProducts> batch;
  for (std::size_t q = 0; q < contexts; ++q) {
    batch.push_back({context, estimates.data() + q * room, radii.data() + q * room});
  }
  for ([[maybe_unused]] auto iteration : state) {
    if constexpr (contexts == 1) {
      kernel.prefix_bounds(blocks, context, estimates.data(), radii.data());
    } else {
      kernel.prefix_bounds_batch(blocks, batch.data(), contexts);
    }
    benchmark::ClobberMemory();
  }
  count_bytes(state, blocks.bytes());
}

}  // namespace

void register_prefix_bounds() {
  register_kernel("prefix_bounds_32", prefix_bounds<32, 0, 0>);
  register_kernel("prefix_bounds_16_int4_96", prefix_bounds<16, 96, 0>);
  register_kernel("prefix_bounds_32_int4_992", prefix_bounds<32, 992, 0>);
  register_kernel("prefix_bounds_16_int4_160_int2_832", prefix_bounds<16, 160, 832>);
  register_kernel("prefix_bounds_1024_of_8_contexts", prefix_bounds<1024, 0, 0, 8>);
  register_kernel("prefix_bounds_32_int4_992_of_8_contexts", prefix_bounds<32, 992, 0, 8>);
}

}  // namespace topksoftmax::bench
