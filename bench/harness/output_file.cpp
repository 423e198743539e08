// SPDX-License-Identifier: Apache-2.0
#include "harness/output_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "harness/usage_error.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/index_file.hpp"

namespace topksoftmax::bench {
namespace {

/// errno's reason.
Error cannot_write(const std::filesystem::path& path) {
  return Error(path.string() + ": cannot be written: " + std::generic_category().message(errno));
}

/// What cannot be replaced by another file: a device, a pipe, and what is being printed to.
bool is_stream(const std::filesystem::path& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) return false;
  if (!S_ISREG(status.st_mode)) return true;
  const auto goes_there = [&status](int descriptor) {
    struct stat printed = {};
    return fstat(descriptor, &printed) == 0 && printed.st_dev == status.st_dev &&
           printed.st_ino == status.st_ino;
  };
  return goes_there(STDOUT_FILENO) || goes_there(STDERR_FILENO);
}

/// Where a path leads, as far as it exists; the path itself where that cannot be told.
std::filesystem::path followed(const std::filesystem::path& path) {
  std::error_code failure;
  std::filesystem::path real = std::filesystem::weakly_canonical(path, failure);
  return failure ? path : real;
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code absent;
  return std::filesystem::equivalent(a, b, absent) || followed(a) == followed(b);
}

void write(std::ofstream& file, const std::filesystem::path& path, std::string_view text) {
  file << text;
  file.close();
  if (!file) throw cannot_write(path);
}

/// The permissions of the file that is replaced pass to the new one.
void replace(const std::filesystem::path& target, std::string_view text) {
  constexpr std::size_t kRecognisable = 200;  // of a name that may be as long as the system allows
  const std::filesystem::path temporary =
      target.parent_path() /
      (target.filename().string().substr(0, kRecognisable) + ".tmp-" + std::to_string(getpid()));
  std::ofstream file(temporary);
  if (!file) throw cannot_write(target);
  try {
    write(file, target, text);
    struct stat status = {};
    if (stat(target.c_str(), &status) == 0) (void)!chmod(temporary.c_str(), status.st_mode & 07777);
    if (rename(temporary.c_str(), target.c_str()) != 0) throw cannot_write(target);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

void check_distinct(std::span<const Output> outputs, const std::filesystem::path& head) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Output& one = outputs[i];
    if (one.path.empty()) continue;
    if (same_file(one.path, head)) {
      throw UsageError(one.option + " is the head file " + head.string() + " itself");
    }
    if (is_stream(one.path)) continue;
    for (const Output& other : outputs.first(i)) {
      if (other.path.empty() || !same_file(one.path, other.path)) continue;
      throw UsageError(one.option + " and " + other.option + " are one file, " + one.path.string());
    }
  }
}

void check_output(const std::filesystem::path& path) {
  if (!is_stream(path)) {
    check_target(path);
  } else if (access(path.c_str(), W_OK) != 0) {
    throw cannot_write(path);
  }
}

void write_output(const std::filesystem::path& path, std::string_view text) {
  if (!is_stream(path)) {
    replace(followed(path), text);
    return;
  }
  std::ofstream stream(path, std::ios::app);
  if (!stream) throw cannot_write(path);
  write(stream, path, text);
}

void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& json) {
  write_output(path, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace topksoftmax::bench
