// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax::testing {

/// Where a block of this type has its factors, as binary16.
inline std::vector<std::size_t> half_offsets(WeightType type) {
  if (type == WeightType::q4_k) return {0, 2};
  return {type == WeightType::q6_k ? std::size_t{208} : std::size_t{0}};
}

/// Blocks of random bytes, whose factors have exponents from `least` to `most` (0 to 30; 15 is about 1).
inline std::vector<std::uint8_t> random_blocks(WeightType type, std::size_t count, unsigned seed,
                                               unsigned least = 4, unsigned most = 8) {
  std::mt19937 engine(seed);
  const std::size_t bytes = weight_block(type).bytes;
  std::vector<std::uint8_t> blocks(count * bytes);
  for (std::uint8_t& byte : blocks) byte = static_cast<std::uint8_t>(engine());
  for (std::size_t block = 0; block < count; ++block) {
    for (const std::size_t offset : half_offsets(type)) {
      const unsigned exponent = least + static_cast<unsigned>(engine()) % (most - least + 1);
      const auto half = static_cast<std::uint16_t>((engine() & 0x83ffU) | exponent << 10);
      blocks[block * bytes + offset] = static_cast<std::uint8_t>(half);
      blocks[block * bytes + offset + 1] = static_cast<std::uint8_t>(half >> 8);
    }
  }
  return blocks;
}

/// A layer of random blocks with biases, at an address that is a multiple of nothing, rows a block apart.
inline SoftmaxLayer random_block_layer(WeightType type, Eigen::Index vocab, Eigen::Index dim, unsigned seed) {
  struct Storage {
    std::vector<std::uint8_t> bytes;
    Eigen::VectorXf bias;
  };
  const WeightBlock block = weight_block(type);
  kernels::Rows rows;
  rows.type = type;
  rows.count = static_cast<std::size_t>(vocab);
  rows.dim = static_cast<std::size_t>(dim);
  rows.stride = rows.dim + block.weights;
  auto storage = std::make_shared<Storage>(Storage{
      random_blocks(type, rows.count * (rows.stride / block.weights), seed), random_vector(vocab, seed + 1)});
  storage->bytes.insert(storage->bytes.begin(), 1, 0);
  rows.data = storage->bytes.data() + 1;
  rows.bias = storage->bias.data();
  return SoftmaxLayer::own(rows, vocab, std::move(storage));
}

}  // namespace topksoftmax::testing
