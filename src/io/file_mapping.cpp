// SPDX-License-Identifier: Apache-2.0
#include "io/file_mapping.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include "io/file_descriptor.hpp"
#include "topksoftmax/error.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

FileMapping::FileMapping(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer; regular files ignore it.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC), path, "open");
  struct stat status;
  if (fstat(file.get(), &status) != 0) throw system_error(path, "examine");
  if (!S_ISREG(status.st_mode)) throw Error(path.string() + ": is not a regular file");
  if (status.st_size == 0) return;  // Nothing can be mapped.

  const auto size = static_cast<std::size_t>(status.st_size);
  void* const address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) throw system_error(path, "map");
  bytes_ = {static_cast<const std::byte*>(address), size};
}

FileMapping::~FileMapping() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace TOPKSOFTMAX_NAMESPACE
