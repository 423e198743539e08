// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#if defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
#include <intrin.h>
#endif

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Tells the processor that this thread does nothing but look.
inline void pause() {
#if defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
  _mm_pause();
#elif defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Looks until `done`, for so long at the most. Returns whether it is.
template <class Done>
bool poll(std::chrono::microseconds most, const Done& done) {
  constexpr int kLooks = 64;  // between looks at the clock
  if (done()) return true;
  if (most.count() <= 0) return false;
  const auto end = std::chrono::steady_clock::now() + most;
  do {
    for (int look = 0; look < kLooks; ++look) {
      if (done()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
