// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "io/file_descriptor.hpp"
#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A file that is written beside its target and takes the target's place when it is whole. Until commit()
/// does so, the target stays as it was; without it the written bytes are removed.
class ReplacingFile {
 public:
  /// Opens the temporary file. A symbolic link as the target stands for the file that it names. Throws Error
  /// for a target that is a folder, a device or a pipe, and where none can be made beside it; like all that
  /// this class throws, by the target's name.
  explicit ReplacingFile(const std::filesystem::path& target);
  ~ReplacingFile();
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;

  void write(std::span<const std::byte> bytes);

  /// Waits until the bytes are on the disk, then puts the file in the target's place.
  void commit();

 private:
  std::filesystem::path target_;
  std::optional<mode_t> mode_;  ///< of the file that is there
  std::filesystem::path temporary_;
  FileDescriptor file_;
  bool committed_ = false;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
