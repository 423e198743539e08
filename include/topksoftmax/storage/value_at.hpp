// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Value i of those that memory holds from here on, which may begin at any byte.
template <class T>
T value_at(const void* begin, std::size_t i = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(begin) + i * sizeof(value), sizeof(value));
  return value;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
