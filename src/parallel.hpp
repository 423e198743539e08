// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <exception>

namespace topksoftmax {

/// Calls body(first, count, thread) for consecutive parts of `total` items, at most `size` each, on at most
/// `threads` ≥ 1 threads, numbered from 0. What the parts compute must not depend on each other. The first
/// exception of any part is thrown again here. One thread is the caller's, without a parallel region.
template <class Body>
void for_each_part_on(std::size_t threads, std::size_t total, std::size_t size, const Body& body) {
  const auto parts = static_cast<std::ptrdiff_t>((total + size - 1) / size);
  const auto run = [&](std::ptrdiff_t i, int thread) {
    const std::size_t first = static_cast<std::size_t>(i) * size;
    body(first, std::min(size, total - first), static_cast<std::size_t>(thread));
  };
  if (threads == 1) {
    for (std::ptrdiff_t i = 0; i < parts; ++i) run(i, 0);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(threads))
  for (std::ptrdiff_t i = 0; i < parts; ++i) {
    try {
      run(i, omp_get_thread_num());
    } catch (...) {
#pragma omp critical(topksoftmax_for_each_part)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// The same on every thread that OpenMP offers, with body(first, count).
template <class Body>
void for_each_part(std::size_t total, std::size_t size, const Body& body) {
  for_each_part_on(static_cast<std::size_t>(omp_get_max_threads()), total, size,
                   [&](std::size_t first, std::size_t count, std::size_t) { body(first, count); });
}

}  // namespace topksoftmax
