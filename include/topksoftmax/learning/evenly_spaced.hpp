// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Which of `count` is number i of the `taken` that are taken from the first to near the last at equal
/// distances.
inline std::size_t spaced_place(std::size_t i, std::size_t taken, std::size_t count) {
  return i * count / taken;
}

/// At most `count` of the contexts, from the first to near the last at equal distances, as a matrix
/// [min(count, N)×d].
inline RowMajorMatrix evenly_spaced(const Contexts& contexts, std::size_t count) {
  const std::size_t taken = std::min(count, contexts.count);
  const auto dim = static_cast<Eigen::Index>(contexts.dim);
  RowMajorMatrix sample(static_cast<Eigen::Index>(taken), dim);
  for (std::size_t i = 0; i < taken; ++i) {
    sample.row(static_cast<Eigen::Index>(i)) =
        Eigen::Map<const Eigen::RowVectorXf>(contexts.row(spaced_place(i, taken, contexts.count)), dim);
  }
  return sample;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
