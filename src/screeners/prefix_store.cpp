// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_store.hpp"

#include <cstring>
#include <limits>

#include "round_outwards.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kRows = kernels::PrefixBlocks::kRows;

}  // namespace

PrefixStore::PrefixStore(std::size_t rows, std::size_t width) {
  blocks_.rows = rows;
  blocks_.width = width;
  storage_ = aligned_zeros(blocks_.bytes());
  blocks_.data = storage_.get();
  constexpr float never = -std::numeric_limits<float>::infinity();
  for (std::size_t row = rows; row < blocks_.blocks() * kRows; ++row) {
    std::memcpy(block_of(row) + row % kRows * sizeof(never), &never, sizeof(never));
  }
}

double PrefixStore::put(std::size_t row, float bias, std::span<const double> x, std::int8_t* q) {
  std::byte* const block = block_of(row);
  const std::size_t r = row % kRows;
  const std::uint16_t scale = bfloat16_up(largest_magnitude(x) / 127.0);
  round_to_bytes(x, bfloat16_value(scale), q);
  std::memcpy(block + r * sizeof(bias), &bias, sizeof(bias));
  std::memcpy(block + kRows * sizeof(bias) + r * sizeof(scale), &scale, sizeof(scale));
  for (std::size_t j = 0; j < x.size(); ++j) {
    block[kernels::PrefixBlocks::kHeader + j / 4 * 64 + r * 4 + j % 4] = static_cast<std::byte>(q[j] + 128);
  }
  return bfloat16_value(scale);
}

void PrefixStore::put_radius(std::size_t row, double radius) {
  const std::uint16_t bits = bfloat16_up(radius);
  const std::size_t at = kRows * (sizeof(float) + sizeof(bits)) + row % kRows * sizeof(bits);
  std::memcpy(block_of(row) + at, &bits, sizeof(bits));
}

}  // namespace topksoftmax
