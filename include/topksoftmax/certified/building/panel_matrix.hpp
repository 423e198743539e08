// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/panels.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A matrix in float32 that many vectors are multiplied by.
class PanelMatrix {
 public:
  template <class Matrix>
  explicit PanelMatrix(const Eigen::MatrixBase<Matrix>& m) {
    const auto& values = m.eval();  // no copy of a matrix
    panels_.rows = static_cast<std::size_t>(m.rows());
    panels_.columns = kernels::Panels::columns_for(static_cast<std::size_t>(m.cols()));
    values_.resize(panels_.rows * panels_.columns);
    for (Eigen::Index i = 0; i < m.rows(); ++i) {
      for (Eigen::Index j = 0; j < m.cols(); ++j) {
        values_[panels_.at(static_cast<std::size_t>(i), static_cast<std::size_t>(j))] =
            static_cast<float>(values(i, j));
      }
    }
  }

  /// X·m [n × columns] of X [n × rows or more], zeros behind m's columns: see kernels::multiply.
  RowMajorMatrix times(const RowMajorMatrix& X) const {
    kernels::Panels panels = panels_;
    panels.data = values_.data();
    RowMajorMatrix products(X.rows(), static_cast<Eigen::Index>(panels.columns));
    kernels::multiply(X.data(), static_cast<std::size_t>(X.cols()), static_cast<std::size_t>(X.rows()),
                      panels, products.data(), panels.columns);
    return products;
  }

 private:
  kernels::Panels panels_;  ///< without their data
  std::vector<float> values_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
