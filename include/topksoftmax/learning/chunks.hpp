// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Contexts that are worked on at a time: enough for a matrix product to be fast.
inline constexpr std::size_t kChunk = 512;

/// Calls body(first, count) for consecutive chunks of `total` contexts, on the threads of the executor: see
/// for_each_part.
template <class Body>
void for_each_chunk(const Executor& executor, std::size_t total, const Body& body) {
  for_each_part(executor, total, kChunk, body);
}

/// Contexts first … first + count − 1 as a matrix [count×d].
inline RowMajorMatrix chunk_of(const Contexts& contexts, std::size_t first, std::size_t count) {
  return Eigen::Map<const RowMajorMatrix, 0, Eigen::OuterStride<>>(
      contexts.row(first), static_cast<Eigen::Index>(count), static_cast<Eigen::Index>(contexts.dim),
      Eigen::OuterStride<>(static_cast<Eigen::Index>(contexts.stride)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
