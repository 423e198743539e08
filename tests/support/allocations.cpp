// SPDX-License-Identifier: Apache-2.0
#include "support/allocations.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TOPKSOFTMAX_TESTS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TOPKSOFTMAX_TESTS_SANITIZED 1
#endif
#endif

#ifdef TOPKSOFTMAX_TESTS_SANITIZED

// A sanitizer brings its own operator new, and cannot be without it; it can tell of each allocation instead.
#include <sanitizer/allocator_interface.h>

namespace {

thread_local std::size_t count = 0;

[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { ++count; }, [](const volatile void*) {});

}  // namespace

#else

#include <cstdlib>
#include <new>

namespace {

thread_local std::size_t count = 0;

void* allocate(std::size_t size, std::size_t alignment) {
  ++count;
  void* const p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

#endif

namespace topksoftmax::testing {

std::size_t allocations() {
  return count;
}

}  // namespace topksoftmax::testing
