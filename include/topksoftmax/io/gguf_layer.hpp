// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/d2t.hpp"
#include "topksoftmax/io/gguf.hpp"
#include "topksoftmax/io/gguf_head.hpp"
#include "topksoftmax/io/stored_layer.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/half.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/value_at.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The softmax layer of a language model in a GGUF file: find_gguf_head() with its transform. Weights in F32,
/// F16, BF16, Q8_0, Q6_K and Q4_K are used where they lie in the mapped file. The bias may be F32, F16 or
/// BF16. Ids are numbers of rows: where the head has a d2t, wrap the backend as gguf_token_ids() says.
///
/// Cost: that of SoftmaxLayer::own(), one read of the weights. Throws Error as find_gguf_head() does, for
/// other types, and for weights that no layer has.
inline SoftmaxLayer gguf_layer(const GgufFile& file);

/// The tokens that the rows of a file's head are; none where row i is token i. What MappedVocabulary::wrap()
/// takes. In llama.cpp's files d2t has the ids themselves. What other converters call d2t.weight has, as in
/// checkpoints, their differences to the rows' numbers.
///
/// Cost: reads up to 8·V bytes. Throws Error for a d2t of another type than I64 and I32, and for what is no
/// id.
inline std::vector<TokenId> gguf_token_ids(const GgufFile& file, const GgufHead& head);

/// The layer of the file at `path`: gguf_layer().
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

/// Values of T, which may lie at any byte, in a vector of others.
template <class T, class Values>
Values values_of(const GgufTensor& tensor) {
  Values values(static_cast<decltype(Values().size())>(tensor.bytes.size() / sizeof(T)));
  const std::byte* bytes = tensor.bytes.data();
  for (auto& value : values) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(value_at<T>(bytes));
    bytes += sizeof(T);
  }
  return values;
}

inline Eigen::VectorXf bias_of(const GgufFile& file, const GgufTensor& bias) {
  switch (bias.type) {
    case GgmlType::float32:
      return values_of<float, Eigen::VectorXf>(bias);
    case GgmlType::float16:
      return values_of<Float16, Eigen::VectorXf>(bias);
    case GgmlType::bfloat16:
      return values_of<Bfloat16, Eigen::VectorXf>(bias);
    default:
      throw file.error(bias.name,
                       "is stored as " + ggml_type_name(bias.type) + ", expected F32, F16 or BF16");
  }
}

inline std::vector<std::int64_t> integers_of(const GgufFile& file, const GgufTensor& tensor) {
  switch (tensor.type) {
    case GgmlType::int64:
      return values_of<std::int64_t, std::vector<std::int64_t>>(tensor);
    case GgmlType::int32:
      return values_of<std::int32_t, std::vector<std::int64_t>>(tensor);
    default:
      throw file.error(tensor.name, "is stored as " + ggml_type_name(tensor.type) + ", expected I64 or I32");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline std::vector<TokenId> gguf_token_ids(const GgufFile& file, const GgufHead& head) {
  if (!head.d2t) return {};
  const std::vector<std::int64_t> values = detail::integers_of(file, *head.d2t);
  const auto error = [&](const std::string& what) { return file.error(head.d2t->name, what); };
  if (head.d2t->name != "d2t") return detail::token_ids_from_d2t(values, error);
  std::vector<TokenId> ids(values.size());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    constexpr std::int64_t most = std::numeric_limits<TokenId>::max() - 1;
    if (values[row] < 0 || values[row] > most) {
      throw error("has " + std::to_string(values[row]) + " for row " + std::to_string(row) +
                  "; it must be an id, at least 0 and at most " + std::to_string(most));
    }
    ids[row] = static_cast<TokenId>(values[row]);
  }
  return ids;
}

inline SoftmaxLayer gguf_layer(const GgufFile& file) {
  const GgufHead head = find_gguf_head(file);
  kernels::Rows rows;
  rows.type = detail::weight_type_of(file, head.weight);
  rows.count = head.vocab();
  rows.dim = rows.stride = head.dim();
  rows.transform = head.transform;
  Eigen::VectorXf bias = head.bias ? detail::bias_of(file, *head.bias) : Eigen::VectorXf();
  return detail::layer_where_it_lies(rows, head.weight.bytes, file.storage(), std::move(bias), {},
                                     [&](const char* what) { return file.error(head.weight.name, what); });
}

inline SoftmaxLayer open_gguf_layer(const std::filesystem::path& path) {
  return gguf_layer(GgufFile::open(path));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
