// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace topksoftmax::bench {

/// The first bytes of a file, as many as it has of them; none of what is no regular file. A pipe is not
/// looked into: to open it would be to wait, and what is read of it is gone.
inline std::string first_bytes(const std::filesystem::path& path, std::size_t count) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return {};
  std::string bytes(count, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

}  // namespace topksoftmax::bench
