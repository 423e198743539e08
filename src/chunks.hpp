// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>

#include "parallel.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// Contexts that are worked on at a time: enough for a matrix product to be fast.
constexpr std::size_t kChunk = 512;

/// Calls body(first, count) for consecutive chunks of `total` contexts, in parallel: see for_each_part.
template <class Body>
void for_each_chunk(std::size_t total, const Body& body) {
  for_each_part(total, kChunk, body);
}

/// Contexts first … first + count − 1 as a matrix [count×d].
inline RowMajorMatrix chunk_of(const Contexts& contexts, std::size_t first, std::size_t count) {
  return Eigen::Map<const RowMajorMatrix, 0, Eigen::OuterStride<>>(
      contexts.row(first), static_cast<Eigen::Index>(count), static_cast<Eigen::Index>(contexts.dim),
      Eigen::OuterStride<>(static_cast<Eigen::Index>(contexts.stride)));
}

}  // namespace topksoftmax
