// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How the rows of W are stored.
enum class WeightType : std::uint8_t {
  float32,
  float16,   ///< IEEE binary16
  bfloat16,  ///< the upper half of a float32
  int8,      ///< signed bytes with a float32 scale a row: w = scale · q
};

/// Bytes of one stored weight.
constexpr std::size_t weight_bytes(WeightType type) {
  return type == WeightType::float32 ? 4 : type == WeightType::int8 ? 1 : 2;
}

namespace kernels {

/// A matrix of rows [count × dim] with a bias each, and what its logits go through, as every kernel takes it:
/// plain pointers, nothing owned.
struct Rows {
  const void* data = nullptr;     ///< row i begins at data + i · stride · weight_bytes(type)
  const float* scales = nullptr;  ///< [count], for int8 rows; otherwise null
  const float* bias = nullptr;    ///< [count], or null for none
  std::size_t count = 0;
  std::size_t dim = 0;
  std::size_t stride = 0;  ///< from one row to the next, in weights; at least dim
  WeightType type = WeightType::float32;
  LogitTransform transform{};

  /// Bytes that reading n whole rows with their scales and biases touches.
  std::size_t bytes(std::size_t n) const {
    return n * (dim * weight_bytes(type) + (scales != nullptr ? 4u : 0u) + (bias != nullptr ? 4u : 0u));
  }
};

}  // namespace kernels
}  // namespace TOPKSOFTMAX_NAMESPACE
