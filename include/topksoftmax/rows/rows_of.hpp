// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A matrix as the kernels take it.
inline kernels::Rows rows_of(const RowMajorMatrix& m) {
  kernels::Rows rows;
  rows.data = m.data();
  rows.count = static_cast<std::size_t>(m.rows());
  rows.dim = rows.stride = static_cast<std::size_t>(m.cols());
  return rows;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
