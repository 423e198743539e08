// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"

// Inline in any case: compilers hold a function that only prefetches for one that does nothing, and drop
// calls.
#if defined(__GNUC__) || defined(__clang__)
#define TOPKSOFTMAX_ALWAYS_INLINE __attribute__((always_inline)) inline
#define TOPKSOFTMAX_PREFETCH(address, cache) __builtin_prefetch(address, 0, cache)
#else
#define TOPKSOFTMAX_ALWAYS_INLINE inline
#define TOPKSOFTMAX_PREFETCH(address, cache) static_cast<void>(address)
#endif

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// Has the cache line at `address` read soon; any address will do.
TOPKSOFTMAX_ALWAYS_INLINE void prefetch(const void* address) {
  TOPKSOFTMAX_PREFETCH(address, 3);
}

/// The same for a line that is wanted so much later that it had better wait in the second cache.
TOPKSOFTMAX_ALWAYS_INLINE void prefetch_second(const void* address) {
  TOPKSOFTMAX_PREFETCH(address, 2);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels

#undef TOPKSOFTMAX_PREFETCH
#undef TOPKSOFTMAX_ALWAYS_INLINE
