// SPDX-License-Identifier: Apache-2.0
#include "io/file_descriptor.hpp"

#include <cerrno>
#include <string>
#include <system_error>

namespace topksoftmax {

Error system_error(const std::filesystem::path& path, std::string_view action) {
  const int code = errno;
  return Error(path.string() + ": cannot " + std::string(action) + ": " +
               std::generic_category().message(code));
}

FileDescriptor::FileDescriptor(const std::filesystem::path& path, int flags, std::string_view action,
                               mode_t mode)
    : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
  if (descriptor_ < 0) throw system_error(path, action);
}

}  // namespace topksoftmax
