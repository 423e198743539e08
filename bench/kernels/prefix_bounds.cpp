// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/registration.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::size_t kWidth = 32;

/// Blocks with zero biases, small scales and radii, and random prefixes.
kernels::PrefixBlocks fill(ScratchBuffer& storage, std::size_t bytes) {
  kernels::PrefixBlocks blocks;
  blocks.width = kWidth;
  blocks.rows = bytes / blocks.block_bytes() * kernels::PrefixBlocks::kRows;
  auto* const data = storage.get<std::byte>(blocks.bytes());
  blocks.data = data;
  std::mt19937 engine(1);
  constexpr std::uint16_t kSmall = 0x3c00;  // 1/128 as bfloat16
  for (std::size_t block = 0; block < blocks.blocks(); ++block) {
    std::byte* const start = data + block * blocks.block_bytes();
    std::memset(start, 0, kernels::PrefixBlocks::kRows * sizeof(float));
    for (std::size_t i = kernels::PrefixBlocks::kRows * sizeof(float); i < kernels::PrefixBlocks::kHeader;
         i += 2) {
      std::memcpy(start + i, &kSmall, sizeof(kSmall));
    }
    for (std::size_t i = kernels::PrefixBlocks::kHeader; i < blocks.block_bytes(); ++i) {
      start[i] = static_cast<std::byte>(engine());
    }
  }
  return blocks;
}

void prefix_bounds(benchmark::State& state, const kernels::detail::Implementation& kernel,
                   std::size_t bytes) {
  ScratchBuffer storage;
  const kernels::PrefixBlocks blocks = fill(storage, bytes);
  std::vector<std::int16_t> n(kWidth, 1234);
  const kernels::PrefixContext context{.n = n.data(), .scale = 1e-3F, .radius = 1.0F};
  std::vector<float> estimates(blocks.blocks() * kernels::PrefixBlocks::kRows);
  std::vector<float> radii(estimates.size());
  for ([[maybe_unused]] auto iteration : state) {
    kernel.prefix_bounds(blocks, context, estimates.data(), radii.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state, blocks.bytes());
}

}  // namespace

void register_prefix_bounds() {
  register_kernel("prefix_bounds_32", prefix_bounds);
}

}  // namespace topksoftmax::bench
