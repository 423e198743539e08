// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <exception>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// Contexts that are worked on at a time: enough for a matrix product to be fast.
constexpr std::size_t kChunk = 512;

/// Calls body(first, count) for consecutive parts of `total` items, at most `size` each, in parallel. What
/// the parts compute must not depend on each other. The first exception of any part is thrown again here.
template <class Body>
void for_each_part(std::size_t total, std::size_t size, const Body& body) {
  const auto parts = static_cast<std::ptrdiff_t>((total + size - 1) / size);
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic)
  for (std::ptrdiff_t i = 0; i < parts; ++i) {
    try {
      const std::size_t first = static_cast<std::size_t>(i) * size;
      body(first, std::min(size, total - first));
    } catch (...) {
#pragma omp critical(topksoftmax_for_each_part)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// The same for contexts.
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
