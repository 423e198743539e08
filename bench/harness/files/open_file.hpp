// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {

/// A file to read bytes from. Throws Error, with the system's reason, where it cannot be opened.
inline std::ifstream open_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const int code = errno;
  if (!file) throw Error(path.string() + ": cannot open: " + std::generic_category().message(code));
  return file;
}

}  // namespace topksoftmax::bench
