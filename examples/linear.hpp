// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "check_finite.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// y = W·x + b on the library's kernels, with W [rows×cols] in the type that the file stores (F32, F16 or
/// BF16), on cache lines of its own.
class Linear {
 public:
  /// [rows, cols], or SafetensorsFile::any_size for what the file says.
  using Shape = std::array<std::size_t, 2>;
  static constexpr Shape kAnyShape = {SafetensorsFile::any_size, SafetensorsFile::any_size};

  Linear() = default;

  /// Without a bias, it is left out. Throws Error as SafetensorsFile does, and for a weight that is not
  /// finite.
  Linear(const SafetensorsFile& file, const std::string& weight, Eigen::VectorXf bias = {},
         const Shape& shape = kAnyShape)
      : bias_(std::move(bias)) {
    const TensorView& view = file.tensor(weight, shape);
    rows_.count = view.shape[0];
    rows_.dim = rows_.stride = view.shape[1];
    switch (view.type) {
      case DataType::float32:
        rows_.type = WeightType::float32;
        break;
      case DataType::float16:
        rows_.type = WeightType::float16;
        break;
      case DataType::bfloat16:
        rows_.type = WeightType::bfloat16;
        break;
      default:
        throw file.error(
            weight, "is stored as " + std::string(data_type_name(view.type)) + ", expected F32, F16 or BF16");
    }
    if (bias_.size() != 0 && bias_.size() != rows()) {
      throw file.error(weight, "has " + std::to_string(rows()) + " rows, its bias " +
                                   std::to_string(bias_.size()) + " values");
    }
    check_finite(file, weight, file.matrix(weight));
    weights_ = StoredArray<std::byte>::copy(view.bytes);
    rows_.data = weights_.data();
  }

  Eigen::Index rows() const { return static_cast<Eigen::Index>(rows_.count); }
  Eigen::Index cols() const { return static_cast<Eigen::Index>(rows_.dim); }

  /// Bytes of W.
  std::size_t bytes() const { return weights_.size(); }

  /// W as a softmax layer without a bias, which shares the weights.
  SoftmaxLayer layer() const { return SoftmaxLayer::own(rows_, 0, weights_.owner()); }

  /// Y [n×rows] for X [n×cols] on so many threads, each of which reads what it takes of W once: of one row X
  /// they share W, of more the rows. The values are the same for every n and every number of threads.
  void apply(const ConstRows& X, RowMajorMatrix& Y, std::size_t threads = 1) const {
    kernels::Rows rows = rows_;
    rows.bias = bias_.size() == 0 ? nullptr : bias_.data();
    Y.resize(X.rows(), this->rows());
    const auto batch = static_cast<std::size_t>(X.rows());
    const auto stride = static_cast<std::size_t>(X.outerStride());
    const std::size_t total = batch == 1 ? rows.count : batch;
    if (total == 0) return;
    for_each_part_on(default_executor(), threads, total, (total + threads - 1) / threads,
                     [&](std::size_t first, std::size_t count, std::size_t) {
                       if (batch == 1) {
                         kernels::scan(rows, first, count, X.data(), Y.data() + first);
                       } else {
                         kernels::scan_batch(rows, X.data() + first * stride, stride, count,
                                             Y.data() + first * rows.count);
                       }
                     });
  }

 private:
  StoredArray<std::byte> weights_;
  kernels::Rows rows_;
  Eigen::VectorXf bias_;
};

}  // namespace topksoftmax::examples
