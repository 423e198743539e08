// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <system_error>

namespace topksoftmax::bench {

/// Whether a path is a folder. False also where the system does not tell: who opens it says what is wrong.
inline bool is_folder(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::is_directory(path, unknown);
}

}  // namespace topksoftmax::bench
