// SPDX-License-Identifier: Apache-2.0
#include "io/file_bytes.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "io/file_descriptor.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

FileBytes map(const FileDescriptor& file, std::size_t size, const std::filesystem::path& path) {
  void* const address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) throw system_error(path, "map");
  return {{static_cast<const std::byte*>(address), size},
          {address, [size](void* mapped) { munmap(mapped, size); }}};
}

FileBytes copy(const FileDescriptor& file, std::size_t size, const std::filesystem::path& path) {
  const std::shared_ptr<std::byte> copied = detail::aligned_zeros(size);
  for (std::size_t at = 0; at < size;) {
    const ssize_t count = ::read(file.get(), copied.get() + at, size - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(path, "read");
    if (count == 0) {
      throw Error(path.string() + ": ends at byte " + std::to_string(at) + ", but had " +
                  std::to_string(size) + " when it was opened; it is being changed");
    }
    at += static_cast<std::size_t>(count);
  }
  return {{copied.get(), size}, copied};
}

}  // namespace

FileBytes read_file(const std::filesystem::path& path, FileAccess access) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer; regular files ignore it.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC), path, "open");
  struct stat status;
  if (fstat(file.get(), &status) != 0) throw system_error(path, "examine");
  if (!S_ISREG(status.st_mode)) throw Error(path.string() + ": is not a regular file");
  if (status.st_size == 0) return {};  // Nothing can be mapped.
  const auto size = static_cast<std::size_t>(status.st_size);
  return access == FileAccess::mapped ? map(file, size, path) : copy(file, size, path);
}

std::string read_text(const std::filesystem::path& path, std::size_t limit, std::string_view what) {
  const FileBytes file = read_file(path);
  const std::span<const std::byte> bytes = file.bytes;
  if (bytes.size() > limit) {
    throw Error(path.string() + ": has " + std::to_string(bytes.size()) + " bytes, the limit for " +
                std::string(what) + " is " + std::to_string(limit));
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
