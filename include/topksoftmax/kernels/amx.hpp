// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"

#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// Whether the processor has AMX's tiles of bytes, and the system lets this process use them: Linux wants to
/// be asked once, for what it keeps of a thread that uses them is larger. No other system is asked.
inline bool may_use_amx() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr unsigned kTilesOfBytes = 1U << 24 | 1U << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTilesOfBytes) != kTilesOfBytes) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, …
  constexpr long kTileData = 18;               // … of XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
