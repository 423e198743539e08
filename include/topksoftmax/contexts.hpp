// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/in_memory.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Contexts [count×dim], by plain pointer: row i at data + i·stride. A view: what it shows must outlive it.
struct Contexts {
  /// The first value of the first row.
  const float* data = nullptr;
  /// Number of contexts.
  std::size_t count = 0;
  /// Values of a context, d.
  std::size_t dim = 0;
  /// Floats from one row to the next, at least dim.
  std::size_t stride = 0;

  /// Those of a row-major float matrix or map in memory (rows may be strided), not of an expression. Throws
  /// Error where the values of a row are not next to each other.
  template <class Matrix>
  static Contexts of(const Eigen::DenseBase<Matrix>& rows) {
    static_assert(RowsInMemory<Matrix>,
                  "contexts must be a row-major float matrix in memory, each row contiguous");
    const Matrix& H = rows.derived();
    check_contiguous(H, "contexts: H");
    return {H.data(), static_cast<std::size_t>(H.rows()), static_cast<std::size_t>(H.cols()),
            static_cast<std::size_t>(H.outerStride())};
  }

  /// None, of this dimension.
  static Contexts none(std::size_t dim) { return {nullptr, 0, dim, dim}; }

  /// Context i [dim], i < count.
  const float* row(std::size_t i) const { return data + i * stride; }
};

}  // namespace TOPKSOFTMAX_NAMESPACE
