// SPDX-License-Identifier: Apache-2.0
#include "support/allocations.hpp"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define TOPKSOFTMAX_TESTS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TOPKSOFTMAX_TESTS_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define TOPKSOFTMAX_TESTS_KEEP_NEW 1
#endif
#endif

#ifdef TOPKSOFTMAX_TESTS_SANITIZED
#include <sanitizer/allocator_interface.h>
#endif

namespace {

thread_local std::size_t count = 0;
std::atomic<std::ptrdiff_t> live{0};
std::atomic<std::ptrdiff_t> live_bytes{0};
std::atomic<std::ptrdiff_t> most_bytes{0};
std::atomic<std::ptrdiff_t> calls_to_failure{0};  // 0 or less: none

#ifdef TOPKSOFTMAX_TESTS_SANITIZED
// A sanitizer can tell of each allocation, those by malloc too.
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { ++count; }, [](const volatile void*) {});
[[maybe_unused]] constexpr std::size_t kCountedHere = 0;
#else
constexpr std::size_t kCountedHere = 1;
#endif

#ifndef TOPKSOFTMAX_TESTS_KEEP_NEW

void fail_if_asked() {
  if (calls_to_failure.load(std::memory_order_relaxed) > 0 && calls_to_failure.fetch_sub(1) == 1) {
    throw std::bad_alloc();
  }
}

void* allocate(std::size_t size, std::size_t alignment) {
  count += kCountedHere;
  void* const p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  live.fetch_add(1, std::memory_order_relaxed);
  const auto bytes = static_cast<std::ptrdiff_t>(malloc_usable_size(p));
  const std::ptrdiff_t now = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::ptrdiff_t most = most_bytes.load(std::memory_order_relaxed);
  while (now > most && !most_bytes.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return p;
}

void release(void* p) {
  if (p != nullptr) {
    live.fetch_sub(1, std::memory_order_relaxed);
    live_bytes.fetch_sub(static_cast<std::ptrdiff_t>(malloc_usable_size(p)), std::memory_order_relaxed);
  }
  std::free(p);
}

#endif

}  // namespace

#ifndef TOPKSOFTMAX_TESTS_KEEP_NEW

void* operator new(std::size_t size) {
  fail_if_asked();
  return allocate(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, alignof(std::max_align_t));  // its callers go on without: nothing to throw
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  fail_if_asked();
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept {
  release(p);
}
void operator delete(void* p, std::size_t) noexcept {
  release(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  release(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  release(p);
}

#endif

namespace topksoftmax::testing {

std::size_t allocations() {
  return count;
}

bool can_fail_allocations() {
#ifdef TOPKSOFTMAX_TESTS_KEEP_NEW
  return false;
#else
  return true;
#endif
}

std::ptrdiff_t live_allocations() {
  return live;
}

MemoryPeak::MemoryPeak() : before_(live_bytes) {
  most_bytes = before_;
}

std::size_t MemoryPeak::bytes() const {
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(most_bytes - before_, 0));
}

FailingAllocation::FailingAllocation(std::size_t n) {
  calls_to_failure = static_cast<std::ptrdiff_t>(n);
}

FailingAllocation::~FailingAllocation() {
  calls_to_failure = 0;
}

bool FailingAllocation::has_failed() const {
  return calls_to_failure <= 0;
}

}  // namespace topksoftmax::testing
