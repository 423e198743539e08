// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <string>

#include "sized_vector.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// Each row moved and scaled to mean 0 and variance 1, then times PREFIX.weight [d], plus PREFIX.bias [d].
class LayerNorm {
 public:
  LayerNorm(const SafetensorsFile& file, const std::string& prefix, std::size_t dim)
      : weight_(sized_vector(file, prefix + ".weight", dim)),
        bias_(sized_vector(file, prefix + ".bias", dim)) {}

  RowMajorMatrix operator()(const RowMajorMatrix& X) const {
    constexpr float epsilon = 1e-5F;
    RowMajorMatrix Y(X.rows(), X.cols());
    for (Eigen::Index i = 0; i < X.rows(); ++i) {
      Y.row(i) = X.row(i).array() - X.row(i).mean();
      const float scale = 1.0F / std::sqrt(Y.row(i).squaredNorm() / static_cast<float>(X.cols()) + epsilon);
      Y.row(i) = Y.row(i).cwiseProduct(weight_) * scale + bias_;
    }
    return Y;
  }

 private:
  Eigen::RowVectorXf weight_;
  Eigen::RowVectorXf bias_;
};

}  // namespace topksoftmax::examples
