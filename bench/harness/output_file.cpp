// SPDX-License-Identifier: Apache-2.0
#include "harness/output_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <system_error>

#include "harness/usage_error.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/replace_file.hpp"

namespace topksoftmax::bench {
namespace {

bool is_standard_output(const std::filesystem::path& path) {
  return path == "-";
}

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

}  // namespace

std::ostream& text_output(const std::filesystem::path& json, const Invocation& invocation) {
  return is_standard_output(json) ? invocation.silence : invocation.out;
}

void check_distinct(std::span<const Output> outputs, const std::filesystem::path& head) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Output& one = outputs[i];
    if (one.path.empty() || is_standard_output(one.path)) continue;
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
  if (is_standard_output(path)) return;
  if (!is_stream(path)) {
    check_target(path);
  } else if (access(path.c_str(), W_OK) != 0) {
    throw cannot_write(path);
  }
}

void write_output(const std::filesystem::path& path, std::string_view text) {
  if (is_standard_output(path)) {
    std::cout << text;
    return;
  }
  if (!is_stream(path)) {
    replace_file(path, std::as_bytes(std::span(text)));
    return;
  }
  std::ofstream stream(path, std::ios::app);
  stream << text;
  stream.close();
  if (!stream) throw cannot_write(path);
}

void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& json) {
  write_output(path, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace topksoftmax::bench
