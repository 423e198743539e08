// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Does every part < parts, each of which may throw: see for_each_part_on().
TOPKSOFTMAX_EXPORT void run_parts(const Executor& executor, std::size_t threads, std::size_t parts,
                                  Executor::Body body);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Calls body(first, count, thread) for consecutive parts of `total` items, at most `size` each, on at most
/// `threads` ≥ 1 threads of the executor, numbered from 0. What the parts compute must not depend on each
/// other. The first exception of any part is thrown again here, when none is going on; parts that have not
/// begun by then are left out. One thread, or one part, is the caller's: the executor is not asked.
template <class Body>
void for_each_part_on(const Executor& executor, std::size_t threads, std::size_t total, std::size_t size,
                      const Body& body) {
  const auto run = [&](std::size_t part, std::size_t thread) {
    body(part * size, std::min(size, total - part * size), thread);
  };
  detail::run_parts(executor, threads, (total + size - 1) / size, Executor::Body(run));
}

/// The same on every thread of the executor, with body(first, count).
template <class Body>
void for_each_part(const Executor& executor, std::size_t total, std::size_t size, const Body& body) {
  for_each_part_on(executor, executor.threads(), total, size,
                   [&](std::size_t first, std::size_t count, std::size_t) { body(first, count); });
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/parallel/for_each_part-inl.hpp"
#endif
