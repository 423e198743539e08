// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline constexpr std::size_t kAnySize = SafetensorsFile::any_size;

inline WeightType stored_weight_type(const SafetensorsFile& file, const TensorView& weight) {
  switch (weight.type) {
    case DataType::float32:
      return WeightType::float32;
    case DataType::float16:
      return WeightType::float16;
    case DataType::bfloat16:
      return WeightType::bfloat16;
    case DataType::int8:
      return WeightType::int8;
    default:
      throw file.error(weight.name, "is stored as " + std::string(data_type_name(weight.type)) +
                                        ", expected F32, F16, BF16 or I8");
  }
}

/// The layer that make() makes of a file's tensor; where that throws Error, because no layer has such
/// weights, throws error(what), which says what they were read from.
template <class Make, class MakeError>
SoftmaxLayer layer_of_file(const Make& make, const MakeError& error) {
  try {
    return make();
  } catch (const Error& refusal) {
    throw error(refusal.what());
  }
}

/// What a layer uses: the file that its weights lie in, and what had to be copied or converted.
struct LayerStorage {
  std::shared_ptr<const void> file;
  std::vector<std::byte> weights;
  Eigen::VectorXf bias;
  Eigen::VectorXf scales;
};

/// A layer of these rows, their weights used where they lie in a mapped `file`; a copy where they do not lie
/// at a multiple of their size. The bias is [V] or empty, the scales [V] for int8 and empty otherwise. Throws
/// error(what) for weights that no layer has.
template <class MakeError>
SoftmaxLayer layer_where_it_lies(kernels::Rows rows, std::span<const std::byte> weights,
                                 std::shared_ptr<const void> file, Eigen::VectorXf bias,
                                 Eigen::VectorXf scales, const MakeError& error) {
  const auto storage = std::make_shared<LayerStorage>();
  storage->file = std::move(file);
  storage->bias = std::move(bias);
  storage->scales = std::move(scales);
  rows.data = weights.data();
  if (reinterpret_cast<std::uintptr_t>(rows.data) % weight_alignment(rows.type) != 0) {
    storage->weights.assign(weights.begin(), weights.end());
    rows.data = storage->weights.data();
  }
  const Eigen::Index bias_count = storage->bias.size();
  if (bias_count != 0) rows.bias = storage->bias.data();
  if (storage->scales.size() != 0) rows.scales = storage->scales.data();
  return layer_of_file([&] { return SoftmaxLayer::own(rows, bias_count, storage); }, error);
}

/// The same of rows first, …, first + count − 1 of a tensor [V,d] of a safetensors file.
inline SoftmaxLayer stored_layer(const SafetensorsFile& file, const TensorView& weight, std::size_t first,
                                 std::size_t count, Eigen::VectorXf bias, Eigen::VectorXf scales,
                                 const LogitTransform& transform) {
  kernels::Rows rows;
  rows.type = stored_weight_type(file, weight);
  rows.count = count;
  rows.dim = rows.stride = weight.shape[1];
  rows.transform = transform;
  return layer_where_it_lies(rows, weight.bytes.subspan(first * rows.row_bytes(), count * rows.row_bytes()),
                             file.storage(), std::move(bias), std::move(scales),
                             [&](const char* what) { return file.error(weight.name, what); });
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
