// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The bytes of a regular file, mapped read-only for as long as the object lives. The file may be replaced or
/// removed meanwhile; it must not be changed in place or shortened.
class FileMapping {
 public:
  /// Throws Error where the file cannot be opened, is not a regular file or cannot be mapped.
  explicit FileMapping(const std::filesystem::path& path);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
