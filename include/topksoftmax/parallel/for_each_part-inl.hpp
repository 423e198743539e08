// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE void run_parts(const Executor& executor, std::size_t threads, std::size_t parts,
                                  Executor::Body body) {
  threads = std::min({threads, executor.threads(), parts});
  if (threads <= 1) {
    for (std::size_t part = 0; part < parts; ++part) body(part, 0);
    return;
  }
  std::exception_ptr failure;
  std::atomic<bool> failed = false;
  const auto guarded = [&](std::size_t part, std::size_t thread) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      body(part, thread);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  executor.run(parts, threads, Executor::Body(guarded));
  if (failure) std::rethrow_exception(failure);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
