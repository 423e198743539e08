// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How the rows of W are stored.
///
/// The last three are ggml's blocks of weights, which carry their scales (binary16, little-endian, as all of
/// it) with them: a row is whole blocks, one behind the other. Every weight is what its formula gives in
/// float32; no other operation than the minus of Q4_K rounds, so every implementation has the same value.
enum class WeightType : std::uint8_t {
  float32,
  float16,   ///< IEEE binary16
  bfloat16,  ///< the upper half of a float32
  int8,      ///< signed bytes with a float32 scale a row: w = scale · q
  q8_0,      ///< 32 weights in 34 bytes: w = d · q, q of 8 bits
  q6_k,      ///< 256 in 210: w = d · scale · (q − 32), q of 6 bits, 8-bit scales of 16 weights each
  q4_k,  ///< 256 in 144: w = d · scale · q − dmin · min, q of 4 bits, 6-bit scales and minima of 32 each
};

/// Weights that are stored together, and the bytes that they take: one weight where it has an address.
struct WeightBlock {
  /// Weights of a block.
  std::size_t weights;
  /// Bytes of a block.
  std::size_t bytes;
};

/// The block of a type.
constexpr WeightBlock weight_block(WeightType type) {
  switch (type) {
    case WeightType::float32:
      return {1, 4};
    case WeightType::float16:
    case WeightType::bfloat16:
      return {1, 2};
    case WeightType::int8:
      break;
    case WeightType::q8_0:
      return {32, 34};
    case WeightType::q6_k:
      return {256, 210};
    case WeightType::q4_k:
      return {256, 144};
  }
  return {1, 1};
}

/// What the address of a row must be a multiple of: the size of a weight; blocks lie anywhere.
constexpr std::size_t weight_alignment(WeightType type) {
  const WeightBlock block = weight_block(type);
  return block.weights == 1 ? block.bytes : 1;
}

/// Bytes of `count` weights in a row, which are whole blocks.
constexpr std::size_t weight_bytes(WeightType type, std::size_t count) {
  const WeightBlock block = weight_block(type);
  return count / block.weights * block.bytes;
}

/// What the type is called in reports: "float32", "bfloat16", "q8_0", …
constexpr std::string_view weight_type_name(WeightType type) {
  switch (type) {
    case WeightType::float32:
      break;
    case WeightType::float16:
      return "float16";
    case WeightType::bfloat16:
      return "bfloat16";
    case WeightType::int8:
      return "int8";
    case WeightType::q8_0:
      return "q8_0";
    case WeightType::q6_k:
      return "q6_k";
    case WeightType::q4_k:
      return "q4_k";
  }
  return "float32";
}

namespace kernels {

/// A matrix of rows [count × dim] with a bias each, and what its logits go through, as every kernel takes it:
/// plain pointers, nothing owned.
struct Rows {
  const void* data = nullptr;     ///< row i begins weight_bytes(type, i · stride) bytes behind it
  const float* scales = nullptr;  ///< [count], for int8 rows; otherwise null
  const float* bias = nullptr;    ///< [count], or null for none
  /// Number of rows.
  std::size_t count = 0;
  /// Weights of a row.
  std::size_t dim = 0;
  std::size_t stride = 0;  ///< from one row to the next, in weights; at least dim, and whole blocks as dim is
  /// How weights are stored.
  WeightType type = WeightType::float32;
  /// What logits are made of products by.
  LogitTransform transform{};

  /// Where row i begins.
  const std::byte* row(std::size_t i) const {
    return static_cast<const std::byte*>(data) + i * weight_bytes(type, stride);
  }

  /// Rows first … first + n − 1.
  Rows part(std::size_t first, std::size_t n) const {
    Rows some = *this;
    some.data = row(first);
    if (scales != nullptr) some.scales += first;
    if (bias != nullptr) some.bias += first;
    some.count = n;
    return some;
  }

  /// Bytes of a row's weights.
  std::size_t row_bytes() const { return weight_bytes(type, dim); }

  /// Bytes that reading n whole rows with their scales and biases touches.
  std::size_t bytes(std::size_t n) const {
    return n * (row_bytes() + (scales != nullptr ? 4u : 0u) + (bias != nullptr ? 4u : 0u));
  }
};

}  // namespace kernels
}  // namespace TOPKSOFTMAX_NAMESPACE
