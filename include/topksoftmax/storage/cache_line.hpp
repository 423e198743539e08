// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What most processors read at once, in bytes.
inline constexpr std::size_t kCacheLine = 64;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
