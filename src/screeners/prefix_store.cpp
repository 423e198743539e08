// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_store.hpp"

#include <cstring>
#include <limits>
#include <string>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "round_outwards.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kRows = kernels::PrefixBlocks::kRows;
/// Where a block's radii begin.
constexpr std::size_t kRadii = kRows * (sizeof(float) + sizeof(std::uint16_t));
/// The bias of rows that fill up the last block.
constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

PrefixStore::PrefixStore(const IndexReader& in, std::size_t width) {
  blocks_.rows = in.vocab();
  blocks_.width = width;
  constexpr const char* name = "prefixes";
  bytes_ = in.array<std::byte>(name, {blocks_.blocks(), blocks_.block_bytes()}, DataType::uint8);
  blocks_.data = bytes_.data();
  const float* const biases = in.layer().rows().bias;
  for (std::size_t row = 0; row < blocks_.blocks() * kRows; ++row) {
    const std::byte* const block = bytes_.data() + row / kRows * blocks_.block_bytes();
    float bias = 0.0F;
    std::uint16_t scale = 0;
    std::uint16_t radius = 0;
    std::memcpy(&bias, block + row % kRows * sizeof(bias), sizeof(bias));
    std::memcpy(&scale, block + kRows * sizeof(bias) + row % kRows * sizeof(scale), sizeof(scale));
    std::memcpy(&radius, block + kRadii + row % kRows * sizeof(radius), sizeof(radius));
    const float own = row >= blocks_.rows ? kNever : biases == nullptr ? 0.0F : biases[row];
    if (bias == own && bfloat16_value(scale) >= 0.0 && bfloat16_value(radius) >= 0.0) continue;
    throw in.damaged(name, "has another bias than the layer in row " + std::to_string(row) +
                               ", or a scale or radius that is NaN or below 0");
  }
}

void PrefixStore::save(IndexWriter& out) const {
  out.array("prefixes", {blocks_.blocks(), blocks_.block_bytes()}, bytes_, DataType::uint8);
}

PrefixWriter::PrefixWriter(std::size_t rows, std::size_t width) {
  blocks_.rows = rows;
  blocks_.width = width;
  storage_ = aligned_zeros(blocks_.bytes());
  blocks_.data = storage_.get();
  for (std::size_t row = rows; row < blocks_.blocks() * kRows; ++row) {
    std::memcpy(block_of(row) + row % kRows * sizeof(kNever), &kNever, sizeof(kNever));
  }
}

double PrefixWriter::put(std::size_t row, float bias, std::span<const double> x, std::int8_t* q) {
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

void PrefixWriter::put_radius(std::size_t row, double radius) {
  const std::uint16_t bits = bfloat16_up(radius);
  std::memcpy(block_of(row) + kRadii + row % kRows * sizeof(bits), &bits, sizeof(bits));
}

PrefixStore PrefixWriter::finish() && {
  const std::shared_ptr<const std::byte> owner = std::move(storage_);
  return {{{owner.get(), blocks_.bytes()}, owner}, blocks_.rows, blocks_.width};
}

}  // namespace topksoftmax
