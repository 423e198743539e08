// SPDX-License-Identifier: Apache-2.0
#include "io/replacing_file.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <string>
#include <system_error>

namespace topksoftmax {
namespace {

std::filesystem::path followed(const std::filesystem::path& target) {
  std::error_code failure;
  if (!std::filesystem::is_symlink(target, failure)) return target;
  const std::filesystem::path real = std::filesystem::canonical(target, failure);
  if (failure) throw Error(target.string() + ": cannot follow the symbolic link: " + failure.message());
  return real;
}

std::filesystem::path temporary_beside(const std::filesystem::path& target) {
  std::random_device random;
  std::filesystem::path temporary = target;
  temporary += ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(random());
  return temporary;
}

}  // namespace

ReplacingFile::ReplacingFile(const std::filesystem::path& target)
    : target_(followed(target)),
      temporary_(temporary_beside(target_)),
      file_(temporary_, O_WRONLY | O_CREAT | O_EXCL, "create", 0666) {
  // A file that is replaced keeps its permissions; where the system refuses, the defaults stand.
  struct stat status;
  if (stat(target_.c_str(), &status) == 0) (void)!fchmod(file_.get(), status.st_mode & 07777);
}

ReplacingFile::~ReplacingFile() {
  if (!committed_) unlink(temporary_.c_str());
}

void ReplacingFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw system_error(temporary_, "write");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void ReplacingFile::commit() {
  if (fsync(file_.get()) != 0) throw system_error(temporary_, "sync");
  std::filesystem::path folder = target_.parent_path();
  if (folder.empty()) folder = ".";
  const FileDescriptor directory(folder, O_RDONLY | O_DIRECTORY, "open");
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) throw system_error(target_, "replace");
  committed_ = true;
  // The file is whole under its name by now. Not every file system can sync a directory, and then there is
  // nothing more to do.
  (void)fsync(directory.get());
}

}  // namespace topksoftmax
