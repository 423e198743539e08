// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Keeps the thread that makes it on one processor (the last that it may run on) until it is destroyed.
/// Where the system offers no such thing, it does nothing.
class TOPKSOFTMAX_EXPORT PinnedThread {
 public:
  PinnedThread();
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  std::vector<unsigned char> previous_;  ///< the processors that it could run on, as the system writes them
};

#ifdef __linux__
inline PinnedThread::PinnedThread() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&allowed);
  for (std::size_t cpu = CPU_SETSIZE; cpu-- > 0;) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) == 0) previous_.assign(bytes, bytes + sizeof(allowed));
    return;
  }
}

inline PinnedThread::~PinnedThread() {
  if (previous_.empty()) return;
  cpu_set_t allowed;
  std::copy(previous_.begin(), previous_.end(), reinterpret_cast<unsigned char*>(&allowed));
  sched_setaffinity(0, sizeof(allowed), &allowed);
}
#else
inline PinnedThread::PinnedThread() = default;
inline PinnedThread::~PinnedThread() = default;
#endif

}  // namespace TOPKSOFTMAX_NAMESPACE
