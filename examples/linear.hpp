// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <memory>
#include <string>
#include <utility>

#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// y = W·x + b on the library's kernels, with W [rows×cols] as the file stores it (F32, F16 or BF16) and
/// where it lies there.
class Linear {
 public:
  Linear() = default;

  /// Without a bias, it is left out. Throws Error as SafetensorsFile does.
  Linear(const SafetensorsFile& file, const std::string& weight, Eigen::VectorXf bias = {})
      : file_(file.storage()), bias_(std::move(bias)) {
    constexpr std::size_t any[] = {SafetensorsFile::any_size, SafetensorsFile::any_size};
    const TensorView& view = file.tensor(weight, any);
    rows_.data = view.bytes.data();
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
  }

  Eigen::Index rows() const { return static_cast<Eigen::Index>(rows_.count); }
  Eigen::Index cols() const { return static_cast<Eigen::Index>(rows_.dim); }

  /// Y [n×rows] for X [n×cols], reading W once.
  void apply(const ConstRows& X, RowMajorMatrix& Y) const {
    kernels::Rows rows = rows_;
    rows.bias = bias_.size() == 0 ? nullptr : bias_.data();
    Y.resize(X.rows(), this->rows());
    if (X.rows() == 1) {
      kernels::scan(rows, 0, rows.count, X.data(), Y.data());
    } else {
      kernels::scan_batch(rows, X.data(), static_cast<std::size_t>(X.outerStride()),
                          static_cast<std::size_t>(X.rows()), Y.data());
    }
  }

 private:
  std::shared_ptr<const void> file_;
  kernels::Rows rows_;
  Eigen::VectorXf bias_;
};

}  // namespace topksoftmax::examples
