// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace topksoftmax::testing {

/// How often this thread has called operator new, counted by a replacement of it in allocations.cpp; under a
/// sanitizer, how often it has allocated at all.
std::size_t allocations();

/// Whether operator new is replaced, and what follows works: not under ThreadSanitizer, which insists on its
/// own.
bool can_fail_allocations();

/// Blocks of memory that operator new has given to any thread and operator delete has not got back.
std::ptrdiff_t live_allocations();

/// How much memory operator new has given out, of all threads together, beyond what it had when this was
/// made.
class MemoryPeak {
 public:
  MemoryPeak();

  /// In bytes, at the most so far. One at a time.
  std::size_t bytes() const;

 private:
  std::ptrdiff_t before_;
};

/// While it lives, one call of operator new fails: the n-th after its making, n ≥ 1, whichever thread makes
/// it. One at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::size_t n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  /// Whether there have been so many calls.
  bool has_failed() const;
};

}  // namespace topksoftmax::testing
