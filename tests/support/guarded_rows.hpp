// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "support/guarded.hpp"
#include "support/weight_blocks.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/kernels/weight_blocks.hpp"

namespace topksoftmax::testing {

inline constexpr WeightType kEveryWeightType[] = {
    WeightType::float32, WeightType::float16, WeightType::bfloat16, WeightType::int8,
    WeightType::q8_0,    WeightType::q6_k,    WeightType::q4_k};

/// Random rows of a type in memory that ends with the last weight of the last row, with biases, and scales
/// where the type has them, that end likewise; and the weights in float64. Weights that have an address are
/// small multiples of 1/64, which every type holds.
class GuardedRows {
 public:
  GuardedRows(WeightType type, std::size_t count, std::size_t dim, std::size_t stride, unsigned seed)
      : dim_(dim),
        bytes_((count - 1) * weight_bytes(type, stride) + weight_bytes(type, dim)),
        bias_(count),
        scales_(type == WeightType::int8 ? count : 0),
        weights_(count * dim) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    rows_ = {.data = bytes_.data(),
             .scales = scales_.size() > 0 ? scales_.data() : nullptr,
             .bias = bias_.data(),
             .count = count,
             .dim = dim,
             .stride = stride,
             .type = type};
    for (float& b : bias_) b = uniform(engine);
    for (float& scale : scales_) scale = uniform(engine) / 64.0F;
    std::vector<float> unpacked(dim);
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* const row = bytes_.data() + i * weight_bytes(type, stride);
      if (weight_block(type).weights > 1) {
        const auto blocks =
            random_blocks(type, dim / weight_block(type).weights, seed + static_cast<unsigned>(i));
        std::memcpy(row, blocks.data(), blocks.size());
        detail::unpack_blocks(rows_, i, unpacked.data());
        for (std::size_t j = 0; j < dim; ++j) weights_[i * dim + j] = static_cast<double>(unpacked[j]);
        continue;
      }
      for (std::size_t j = 0; j < dim; ++j) {
        const int q = static_cast<int>(engine() % 255) - 127;
        put(type, q, row + j * weight_block(type).bytes);
        const double step = type == WeightType::int8 ? static_cast<double>(scales_[i]) : 1.0 / 64.0;
        weights_[i * dim + j] = step * q;
      }
    }
  }

  const kernels::Rows& rows() const { return rows_; }
  std::span<const double> weights(std::size_t row) const {
    return std::span(weights_).subspan(row * dim_, dim_);
  }

  /// w·h + b of a row in float64, and how far float32 may be from it.
  struct Logit {
    double value;
    double tolerance;
  };
  Logit logit(std::size_t row, const float* h) const {
    auto value = static_cast<double>(bias_[row]);
    double magnitude = std::abs(value);
    for (std::size_t j = 0; j < dim_; ++j) {
      const double product = weights(row)[j] * static_cast<double>(h[j]);
      value += product;
      magnitude += std::abs(product);
    }
    return {value, 0x1p-24 * static_cast<double>(dim_ + 3) * magnitude};
  }

 private:
  static void put(WeightType type, int q, std::byte* p) {
    const float value = static_cast<float>(q) / 64.0F;
    const auto as = [p](auto x) { std::memcpy(p, &x, sizeof(x)); };
    if (type == WeightType::float32) return as(value);
    if (type == WeightType::float16) return as(Eigen::half(value));
    if (type == WeightType::bfloat16) return as(Eigen::bfloat16(value));
    if (type == WeightType::int8) return as(static_cast<std::int8_t>(q));
    throw std::logic_error("blocks are not written weight by weight");
  }

  std::size_t dim_;
  Guarded<std::byte> bytes_;
  Guarded<float> bias_;
  Guarded<float> scales_;
  std::vector<double> weights_;
  kernels::Rows rows_;
};

}  // namespace topksoftmax::testing
