// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/io/gguf.hpp"
#include "topksoftmax/io/gguf_head.hpp"
#include "topksoftmax/io/stored_layer.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/half.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The softmax layer of a language model in a GGUF file: find_gguf_head() with its transform. Weights in F32,
/// F16, BF16, Q8_0, Q6_K and Q4_K are used where they lie in the mapped file. The bias may be F32, F16 or
/// BF16.
///
/// Cost: that of SoftmaxLayer::own(), one read of the weights. Throws Error as find_gguf_head() does, for
/// other types, and for weights that no layer has.
inline SoftmaxLayer gguf_layer(const GgufFile& file);

/// The same of the file at `path`.
inline SoftmaxLayer open_gguf_layer(const std::filesystem::path& path);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline WeightType weight_type_of(const GgufFile& file, const GgufTensor& weight) {
  switch (weight.type) {
    case GgmlType::float32:
      return WeightType::float32;
    case GgmlType::float16:
      return WeightType::float16;
    case GgmlType::bfloat16:
      return WeightType::bfloat16;
    case GgmlType::q8_0:
      return WeightType::q8_0;
    case GgmlType::q6_k:
      return WeightType::q6_k;
    case GgmlType::q4_k:
      return WeightType::q4_k;
    default:
      throw file.error(weight.name, "is stored as " + ggml_type_name(weight.type) +
                                        ", expected F32, F16, BF16, Q8_0, Q6_K or Q4_K");
  }
}

/// Values of T, which may lie at any byte, as floats.
template <class T>
Eigen::VectorXf floats_of(const GgufTensor& tensor) {
  Eigen::VectorXf values(static_cast<Eigen::Index>(tensor.bytes.size() / sizeof(T)));
  for (Eigen::Index i = 0; i < values.size(); ++i) {
    T value{};
    std::memcpy(&value, tensor.bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
  return values;
}

inline Eigen::VectorXf bias_of(const GgufFile& file, const GgufTensor& bias) {
  switch (bias.type) {
    case GgmlType::float32:
      return floats_of<float>(bias);
    case GgmlType::float16:
      return floats_of<Float16>(bias);
    case GgmlType::bfloat16:
      return floats_of<Bfloat16>(bias);
    default:
      throw file.error(bias.name,
                       "is stored as " + ggml_type_name(bias.type) + ", expected F32, F16 or BF16");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline SoftmaxLayer gguf_layer(const GgufFile& file) {
  const GgufHead head = find_gguf_head(file);
  kernels::Rows rows;
  rows.type = detail::weight_type_of(file, head.weight);
  rows.count = head.vocab();
  rows.dim = rows.stride = head.dim();
  rows.transform = head.transform;
  Eigen::VectorXf bias = head.bias ? detail::bias_of(file, *head.bias) : Eigen::VectorXf();
  return detail::layer_where_it_lies(rows, head.weight.bytes, file.storage(), std::move(bias), {});
}

inline SoftmaxLayer open_gguf_layer(const std::filesystem::path& path) {
  return gguf_layer(GgufFile::open(path));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
