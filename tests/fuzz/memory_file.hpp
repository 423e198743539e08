// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "fuzz/targets.hpp"

namespace topksoftmax::fuzz {

/// A file in memory that can be opened by its path.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : descriptor_(memfd_create("fuzzed", MFD_CLOEXEC)) {
    if (descriptor_ < 0 ||
        ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("cannot make a file in memory");
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// The bytes of a safetensors file: the input itself; or, where it begins with '{', its first line as the
/// header, the length before it, and the rest as data. So seeds are text, and mutations keep the length
/// right.
inline std::string safetensors_bytes(Bytes input) {
  const std::string bytes(input.begin(), input.end());
  if (!bytes.starts_with('{')) return bytes;
  const std::size_t end = std::min(bytes.find('\n'), bytes.size());
  const std::uint64_t length = end;
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + bytes.substr(0, end) + bytes.substr(std::min(end + 1, bytes.size()));
}

}  // namespace topksoftmax::fuzz
