// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/half.hpp"

// ggml's blocks of weights, one value at a time: what the kernels take a vector at a time
// (kernels/stored-inl.h), and to the same bits.
namespace TOPKSOFTMAX_NAMESPACE::detail {

inline float half_at(const std::uint8_t* p) {
  return static_cast<float>(Float16::at(p));
}

/// WeightType::q8_0: a block's 32 weights.
inline void unpack_q8_0(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  for (std::size_t i = 0; i < 32; ++i)
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
}

/// WeightType::q6_k: a block's 256 weights.
inline void unpack_q6_k(const std::uint8_t* block, float* out) {
  const float d = half_at(block + 208);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t half = i / 128;
    const std::size_t quarter = i / 32 % 4;
    const std::size_t l = i % 32;
    const unsigned low = block[half * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15U;
    const unsigned high = block[128 + half * 32 + l] >> (quarter * 2) & 3U;
    const int q = static_cast<int>(low | high << 4) - 32;
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[192 + i / 16])) * static_cast<float>(q);
  }
}

/// WeightType::q4_k: a block's 256 weights.
inline void unpack_q4_k(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const std::uint8_t* const packed = block + 4;
  for (std::size_t part = 0; part < 8; ++part) {
    const bool first = part < 4;
    const auto bits = [packed](std::size_t i) { return unsigned{packed[i]}; };
    const unsigned scale = first ? bits(part) & 63U : (bits(part + 4) & 15U) | (bits(part - 4) >> 6U << 4U);
    const unsigned min = first ? bits(part + 4) & 63U : bits(part + 4) >> 4U | (bits(part) >> 6U << 4U);
    const float factor = d * static_cast<float>(scale);
    const float least = dmin * static_cast<float>(min);
    for (std::size_t l = 0; l < 32; ++l) {
      const unsigned q = block[16 + part / 2 * 32 + l] >> (part % 2 * 4) & 15U;
      out[part * 32 + l] = factor * static_cast<float>(q) - least;
    }
  }
}

/// The weights of a row as float32 [dim]; its type is one of blocks.
inline void unpack_blocks(const kernels::Rows& rows, std::size_t token, float* out) {
  const WeightBlock shape = weight_block(rows.type);
  const auto* block = reinterpret_cast<const std::uint8_t*>(rows.row(token));
  for (std::size_t j = 0; j < rows.dim; j += shape.weights, block += shape.bytes) {
    if (rows.type == WeightType::q8_0) {
      unpack_q8_0(block, out + j);
    } else if (rows.type == WeightType::q6_k) {
      unpack_q6_k(block, out + j);
    } else {
      unpack_q4_k(block, out + j);
    }
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
