// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Calls body(first, count, thread) for consecutive parts of `total` items, at most `size` each, on at most
/// `threads` ≥ 1 threads of the executor, numbered from 0. What the parts compute must not depend on each
/// other. The first exception of any part is thrown again here, when none is going on; parts that have not
/// begun by then are left out. One thread, or one part, is the caller's: the executor is not asked.
template <class Body>
void for_each_part_on(const Executor& executor, std::size_t threads, std::size_t total, std::size_t size,
                      const Body& body) {
  const std::size_t parts = (total + size - 1) / size;
  const auto run = [&](std::size_t part, std::size_t thread) {
    body(part * size, std::min(size, total - part * size), thread);
  };
  threads = std::min({threads, executor.threads(), parts});
  if (threads <= 1) {
    for (std::size_t part = 0; part < parts; ++part) run(part, 0);
    return;
  }
  std::exception_ptr failure;
  std::atomic<bool> failed = false;
  const auto guarded = [&](std::size_t part, std::size_t thread) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      run(part, thread);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  executor.run(parts, threads, Executor::Body(guarded));
  if (failure) std::rethrow_exception(failure);
}

/// The same on every thread of the executor, with body(first, count).
template <class Body>
void for_each_part(const Executor& executor, std::size_t total, std::size_t size, const Body& body) {
  for_each_part_on(executor, executor.threads(), total, size,
                   [&](std::size_t first, std::size_t count, std::size_t) { body(first, count); });
}

}  // namespace TOPKSOFTMAX_NAMESPACE
