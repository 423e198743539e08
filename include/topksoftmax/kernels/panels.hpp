// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// A float32 matrix [rows × columns] that many vectors are multiplied by: of each kWidth columns all rows,
/// one behind the other. A panel of 1,024 rows stays in the second cache.
struct Panels {
  static constexpr std::size_t kWidth = 32;

  const float* data = nullptr;  ///< [columns/kWidth × rows × kWidth]
  std::size_t rows = 0;
  std::size_t columns = 0;  ///< a multiple of kWidth

  /// Columns that are enough for `count`.
  static constexpr std::size_t columns_for(std::size_t count) {
    return (count + kWidth - 1) / kWidth * kWidth;
  }

  /// Where an entry lies.
  constexpr std::size_t at(std::size_t row, std::size_t column) const {
    return (column / kWidth * rows + row) * kWidth + column % kWidth;
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
