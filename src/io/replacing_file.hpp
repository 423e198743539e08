// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "io/file_descriptor.hpp"

namespace topksoftmax {

/// A file that is written beside its target and takes the target's place when it is whole. Until commit()
/// does so, the target stays as it was; without it the written bytes are removed.
class ReplacingFile {
 public:
  /// Opens the temporary file. A symbolic link as the target stands for the file that it names.
  explicit ReplacingFile(const std::filesystem::path& target);
  ~ReplacingFile();
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;

  void write(std::span<const std::byte> bytes);

  /// Waits until the bytes are on the disk, then puts the file in the target's place.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  FileDescriptor file_;
  bool committed_ = false;
};

}  // namespace topksoftmax
