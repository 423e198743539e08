// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How the bytes of a file that is open are held.
enum class FileAccess : std::uint8_t {
  /// Where they lie in the mapped file, shared with all processes that do so. The file may be replaced or
  /// removed meanwhile, but who changes it in place changes answers, and who shortens it ends the program.
  mapped,
  /// In memory of this process: nothing that becomes of the file afterwards matters.
  copied,
};

}  // namespace TOPKSOFTMAX_NAMESPACE
