// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/in_memory.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/kernels/weight_blocks.hpp"
#include "topksoftmax/numeric/finite.hpp"
#include "topksoftmax/numeric/half.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

template <class Lane>
void convert_row(const kernels::Rows& rows, std::size_t token, float* out) {
  const auto* const row = reinterpret_cast<const Lane*>(rows.row(token));
  const float scale = rows.scales != nullptr ? rows.scales[token] : 1.0F;
  for (std::size_t j = 0; j < rows.dim; ++j) out[j] = scale * static_cast<float>(row[j]);
}

inline void copy_row_of(const kernels::Rows& rows, std::size_t token, float* out) {
  switch (rows.type) {
    case WeightType::float32:
      return convert_row<float>(rows, token, out);
    case WeightType::float16:
      return convert_row<Float16>(rows, token, out);
    case WeightType::bfloat16:
      return convert_row<Bfloat16>(rows, token, out);
    case WeightType::int8:
      return convert_row<std::int8_t>(rows, token, out);
    case WeightType::q8_0:
    case WeightType::q6_k:
    case WeightType::q4_k:
      return unpack_blocks(rows, token, out);
  }
}

inline std::string described(float value) {
  return std::isnan(value) ? "NaN" : value > 0 ? "infinite" : "-infinite";
}

inline void check_vector(const float* values, std::size_t count, const char* name) {
  if (values == nullptr) return;
  const std::size_t i = first_not_finite(values, count);
  if (i == count) return;
  throw Error("softmax layer: " + std::string(name) + "[" + std::to_string(i) + "] is " +
              described(values[i]) + "; it must be finite");
}

/// Whatever bytes a row has, its weights are then finite.
inline void check_scales(const kernels::Rows& rows) {
  constexpr float largest = std::numeric_limits<float>::max() / 128.0F;
  for (std::size_t i = 0; i < rows.count; ++i) {
    if (std::abs(rows.scales[i]) <= largest) continue;
    throw Error("softmax layer: scale[" + std::to_string(i) + "] is " + number_text(rows.scales[i]) +
                "; it must be between -" + number_text(largest) + " and " + number_text(largest) +
                ", so that weights are finite");
  }
}

TOPKSOFTMAX_INLINE void check_transform(const LogitTransform& transform, std::string_view where) {
  const auto check = [where](const char* name, float value, const char* otherwise) {
    if (value >= LogitTransform::kLeast && value <= LogitTransform::kMost) return;
    throw Error(std::string(where) + "softmax layer: the " + name + " is " +
                (std::isfinite(value) ? number_text(value) : described(value)) +
                "; it must be between 1e-09 and 1e+09" + otherwise);
  };
  check("scale of the logits", transform.scale, "");
  if (transform.soft_cap != 0.0F) check("soft cap", transform.soft_cap, ", or 0 for none");
}

inline void check_layer(const kernels::Rows& rows, std::ptrdiff_t bias_count) {
  if (rows.count == 0) throw Error("softmax layer: W has 0 rows; the vocabulary needs at least 1 token");
  if (rows.dim == 0) throw Error("softmax layer: W has 0 columns; the dimension must be at least 1");
  if (rows.count > static_cast<std::size_t>(std::numeric_limits<TokenId>::max())) {
    throw Error("softmax layer: W has " + std::to_string(rows.count) +
                " rows; at most 2^31 - 1 are supported");
  }
  if (rows.data == nullptr) throw Error("softmax layer: W is a null pointer");
  if (rows.stride < rows.dim) {
    throw Error("softmax layer: rows are " + std::to_string(rows.stride) +
                " weights apart, less than their length " + std::to_string(rows.dim));
  }
  const std::size_t block = weight_block(rows.type).weights;
  if (rows.dim % block != 0 || rows.stride % block != 0) {
    throw Error("softmax layer: rows of " + std::to_string(rows.dim) + " weights, " +
                std::to_string(rows.stride) + " apart, are not whole blocks of " + std::to_string(block) +
                ", as " + std::string(weight_type_name(rows.type)) + " stores them");
  }
  if (rows.bias != nullptr && bias_count != static_cast<std::ptrdiff_t>(rows.count)) {
    throw Error("softmax layer: b has " + std::to_string(bias_count) + " values, W has " +
                std::to_string(rows.count) + " rows; they must agree (or b be empty)");
  }
  if ((rows.type == WeightType::int8) != (rows.scales != nullptr)) {
    throw Error("softmax layer: int8 rows, and only they, need a scale each");
  }
  check_transform(rows.transform);
  check_vector(rows.bias, rows.count, "b");
  check_vector(rows.scales, rows.count, "scale");
  if (rows.type == WeightType::int8) return check_scales(rows);
  std::vector<float> row(rows.dim);
  for (std::size_t token = 0; token < rows.count; ++token) {
    copy_row_of(rows, token, row.data());
    const std::size_t j = first_not_finite(row.data(), rows.dim);
    if (j == rows.dim) continue;
    throw Error("softmax layer: W at row " + std::to_string(token) + ", column " + std::to_string(j) +
                " is " + described(row[j]) + "; it must be finite");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE SoftmaxLayer SoftmaxLayer::borrow(const kernels::Rows& rows, std::ptrdiff_t bias_count) {
  return own(rows, bias_count, nullptr);
}

TOPKSOFTMAX_INLINE SoftmaxLayer SoftmaxLayer::own(const kernels::Rows& rows, std::ptrdiff_t bias_count,
                                                  std::shared_ptr<const void> storage) {
  detail::check_layer(rows, bias_count);
  return SoftmaxLayer(rows, std::move(storage));
}

TOPKSOFTMAX_INLINE SoftmaxLayer SoftmaxLayer::with(const LogitTransform& transform) const {
  detail::check_transform(transform);
  SoftmaxLayer layer = *this;
  layer.rows_.transform = transform;
  return layer;
}

TOPKSOFTMAX_INLINE void SoftmaxLayer::copy_row(std::size_t token, float* out) const {
  detail::copy_row_of(rows_, token, out);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
