// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// Has the cache line at `address` read soon; any address will do.
inline void prefetch(const void* address) {
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(address, 0, 3);
#else
  static_cast<void>(address);
#endif
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
