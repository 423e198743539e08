// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Rounds 32 weights to a block of WeightType::q8_0: d is the largest magnitude's 127th part as a binary16,
/// q the nearest multiple of the unrounded one, as ggml does it.
inline void pack_q8_0(const float* weights, std::uint8_t* block) {
  float largest = 0.0F;
  for (std::size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(weights[i]));
  const float d = largest / 127.0F;
  const auto half = Eigen::numext::bit_cast<std::uint16_t>(Eigen::half(d));
  // What is stored as 0 may be too small to be divided by.
  const float inverse = half != 0 ? 1.0F / d : 0.0F;
  block[0] = static_cast<std::uint8_t>(half & 0xffU);  // blocks are little-endian, whatever the machine
  block[1] = static_cast<std::uint8_t>(half >> 8U);
  for (std::size_t i = 0; i < 32; ++i) {
    block[2 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(std::round(weights[i] * inverse)));
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// The layer with its weights rounded to WeightType::q8_0, in memory of its own that begins on a cache line;
/// biases and transform are the layer's, which is kept alive. So an engine's Q8_0 head can be compared with
/// the one that it was made from. Cost: one read of W, 34/32·V·d bytes. Throws Error where d is not a
/// multiple of 32, or a weight is too large for a block's factor (8·10⁶).
inline SoftmaxLayer q8_0_copy(const SoftmaxLayer& layer) {
  constexpr WeightBlock block = weight_block(WeightType::q8_0);
  if (layer.dim() % block.weights != 0) {
    throw Error("q8_0: rows have " + std::to_string(layer.dim()) + " weights; they must be whole blocks of " +
                std::to_string(block.weights));
  }
  struct Storage {
    std::shared_ptr<std::byte> weights;
    SoftmaxLayer layer;  // has the biases
  };
  kernels::Rows rows = layer.rows();
  rows.type = WeightType::q8_0;
  rows.stride = rows.dim;
  rows.scales = nullptr;
  auto storage =
      std::make_shared<Storage>(Storage{detail::aligned_zeros(rows.count * rows.row_bytes()), layer});
  rows.data = storage->weights.get();
  std::vector<float> row(rows.dim);
  auto* to = reinterpret_cast<std::uint8_t*>(storage->weights.get());
  for (std::size_t token = 0; token < rows.count; ++token) {
    layer.copy_row(token, row.data());
    for (std::size_t j = 0; j < rows.dim; j += block.weights, to += block.bytes) {
      detail::pack_q8_0(row.data() + j, to);
    }
  }
  const auto bias_count = static_cast<std::ptrdiff_t>(rows.bias == nullptr ? 0 : rows.count);
  return SoftmaxLayer::own(rows, bias_count, std::move(storage));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
