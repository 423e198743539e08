// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Takes evenly spaced contexts away, at most half of them. What was learned of a context fits it better than
/// any other, the more so the fewer there are: these can be judged by.
inline RowMajorMatrix hold_out(RowMajorMatrix& contexts, std::size_t most) {
  const Eigen::Index count = contexts.rows();
  RowMajorMatrix taken(std::min(static_cast<Eigen::Index>(most), count / 2), contexts.cols());
  Eigen::Index next = 0;
  for (Eigen::Index i = 0; i < count; ++i) {
    if (next < taken.rows() && i == next * count / taken.rows()) {
      taken.row(next++) = contexts.row(i);
    } else {
      contexts.row(i - next) = contexts.row(i);
    }
  }
  contexts.conservativeResize(count - next, Eigen::NoChange);
  return taken;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
