// SPDX-License-Identifier: Apache-2.0
#include "io/replacing_file.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <system_error>

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

std::filesystem::path followed(const std::filesystem::path& target) {
  std::error_code failure;
  if (!std::filesystem::is_symlink(target, failure)) return target;
  std::filesystem::path real = std::filesystem::canonical(target, failure);
  if (failure) throw Error(target.string() + ": cannot follow the symbolic link: " + failure.message());
  return real;
}

/// Of a name that may be as long as the system allows, its beginning tells whose temporary file this is.
std::filesystem::path temporary_beside(const std::filesystem::path& target) {
  constexpr std::size_t kRecognisable = 200;
  std::random_device random;
  const std::string name = target.filename().string().substr(0, kRecognisable);
  return target.parent_path() / (name + ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(random()));
}

/// What a file is to replace, and its permissions; throws Error for what no file may replace.
std::optional<mode_t> replaced_mode(const std::filesystem::path& target) {
  struct stat status;
  if (target.empty()) throw Error("cannot save to a path that is empty");
  if (stat(target.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::nullopt;
    throw system_error(target, "replace");
  }
  if (S_ISDIR(status.st_mode)) throw Error(target.string() + ": cannot replace a folder");
  if (!S_ISREG(status.st_mode)) throw Error(target.string() + ": cannot replace what is not a regular file");
  return status.st_mode & 07777;
}

}  // namespace

ReplacingFile::ReplacingFile(const std::filesystem::path& target)
    : target_(followed(target)),
      mode_(replaced_mode(target_)),
      temporary_(temporary_beside(target_)),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode_ ? 0600 : 0666), target_,
            "create") {
  // A file that is replaced keeps its permissions, and nobody else reads the new one before it has them;
  // where the system refuses, it stays the owner's.
  if (mode_) (void)!fchmod(file_.get(), *mode_);
}

ReplacingFile::~ReplacingFile() {
  if (!committed_) unlink(temporary_.c_str());
}

void ReplacingFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw system_error(target_, "write");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void ReplacingFile::commit() {
  if (fsync(file_.get()) != 0) throw system_error(target_, "sync");
  std::filesystem::path folder = target_.parent_path();
  if (folder.empty()) folder = ".";
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) throw system_error(target_, "replace");
  committed_ = true;
  // The file is whole under its name by now. Not every folder can be opened, nor every file system sync one,
  // and then there is nothing more to do.
  const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  (void)fsync(directory);
  ::close(directory);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
