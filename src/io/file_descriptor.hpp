// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "topksoftmax/error.hpp"

namespace topksoftmax {

/// The Error for a system call that just failed: "PATH: cannot ACTION: reason", the reason from errno.
Error system_error(const std::filesystem::path& path, std::string_view action);

/// An open file, closed with the object.
class FileDescriptor {
 public:
  /// open(2) with these flags and O_CLOEXEC; a failure is reported as system_error(path, action).
  FileDescriptor(const std::filesystem::path& path, int flags, std::string_view action, mode_t mode = 0);
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace topksoftmax
