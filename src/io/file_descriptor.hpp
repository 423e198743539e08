// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The Error for a system call that just failed: "PATH: cannot ACTION: reason", the reason from errno.
Error system_error(const std::filesystem::path& path, std::string_view action);

/// An open file, closed with the object.
class FileDescriptor {
 public:
  /// Takes what open(2) has just returned; its failure is reported as system_error(path, action).
  FileDescriptor(int descriptor, const std::filesystem::path& path, std::string_view action);
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
