// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Memory that begins on a cache line.
struct FreeAligned {
  static constexpr std::align_val_t kCacheLine{64};
  void operator()(std::byte* p) const { ::operator delete(p, kCacheLine); }
};
using AlignedStorage = std::unique_ptr<std::byte, FreeAligned>;

/// So many bytes of it, all zero.
inline AlignedStorage aligned_zeros(std::size_t bytes) {
  AlignedStorage storage(static_cast<std::byte*>(::operator new(bytes, FreeAligned::kCacheLine)));
  std::memset(storage.get(), 0, bytes);
  return storage;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
