// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Throws Error on a big-endian machine: the values of a file are little-endian, and used where they lie.
inline void require_little_endian(const std::string& file) {
  if constexpr (std::endian::native != std::endian::little) {
    throw Error(file +
                ": its values are little-endian, and this machine is big-endian; here the library works in "
                "memory alone");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE
