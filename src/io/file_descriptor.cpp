// SPDX-License-Identifier: Apache-2.0
#include "io/file_descriptor.hpp"

#include <cerrno>
#include <string>
#include <system_error>

namespace TOPKSOFTMAX_NAMESPACE {

Error system_error(const std::filesystem::path& path, std::string_view action) {
  const int code = errno;
  return Error(path.string() + ": cannot " + std::string(action) + ": " +
               std::generic_category().message(code));
}

FileDescriptor::FileDescriptor(int descriptor, const std::filesystem::path& path, std::string_view action)
    : descriptor_(descriptor) {
  if (descriptor_ < 0) throw system_error(path, action);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
