// SPDX-License-Identifier: Apache-2.0
#include "harness/files/output_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <fstream>
#include <iostream>
#include <system_error>

#include "harness/command_line/usage_error.hpp"
#include "harness/files/folder.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/replace_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/io/safetensors_shards.hpp"

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

constexpr std::string_view kTensors = ".safetensors";
constexpr std::string_view kIndexOfShards = ".safetensors.index.json";
constexpr std::string_view kIndexOfAModel = "model.safetensors.index.json";

/// Whether the index of a model's shards has the output among them, by whatever name.
bool is_a_shard(const std::filesystem::path& index, const std::filesystem::path& output) {
  try {
    const SafetensorsShards shards = SafetensorsShards::open(index);
    return std::ranges::any_of(shards.files(),
                               [&](const SafetensorsFile& shard) { return same_file(shard.path(), output); });
  } catch (const Error&) {
    return false;  // who reads the index says what is wrong with it
  }
}

/// Whether a model's folder, the index of its shards, or a file of its tensors has the output among the files
/// that are read with it.
bool reads_of_a_model(const std::filesystem::path& input, const std::filesystem::path& output) {
  const bool whole = is_folder(input);
  const bool has_shards = whole || input.extension() == ".json";
  if (!has_shards && input.extension() != kTensors) return false;
  const std::filesystem::path model = whole ? input : std::filesystem::absolute(input).parent_path();
  const auto is_there = [&](const std::filesystem::path& file) {
    const std::string name = file.filename().string();
    const bool is_of_a_model =
        name == "config.json" || name.ends_with(kIndexOfShards) || (has_shards && name.ends_with(kTensors));
    return is_of_a_model && same_file(std::filesystem::absolute(file).parent_path(), model);
  };
  if (is_there(output) || is_there(followed(output))) return true;
  return has_shards && is_a_shard(whole ? model / kIndexOfAModel : input, output);
}

/// Throws UsageError where an output is one of the files that are read.
void check_unread(const NamedFile& output, std::span<const NamedFile> inputs) {
  std::error_code absent;
  if (!std::filesystem::is_regular_file(output.path, absent)) return;  // there is nothing to destroy
  for (const NamedFile& input : inputs) {
    if (input.path.empty()) continue;
    const bool is_it = same_file(output.path, input.path);
    if (!is_it && !reads_of_a_model(input.path, output.path)) continue;
    throw UsageError(output.option + (is_it ? " is the file of " : " is a file of the model of ") +
                     input.option + ", " + output.path.string() + "; name another");
  }
}

/// Throws UsageError where two outputs would be mixed, or one would take the other's place.
void check_apart(const NamedFile& one, const NamedFile& other) {
  const bool is_standard = is_standard_output(one.path);
  if (is_standard != is_standard_output(other.path)) return;
  if (is_standard) throw UsageError(one.option + " and " + other.option + " are both standard output");
  if (is_stream(one.path) || !same_file(one.path, other.path)) return;
  throw UsageError(one.option + " and " + other.option + " are one file, " + one.path.string());
}

}  // namespace

std::ostream& text_output(std::initializer_list<std::filesystem::path> files, const Invocation& invocation) {
  return std::any_of(files.begin(), files.end(), is_standard_output) ? invocation.silence : invocation.out;
}

void check_distinct(std::span<const NamedFile> outputs, std::span<const NamedFile> inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& one = outputs[i];
    if (one.path.empty()) continue;
    if (!is_standard_output(one.path)) check_unread(one, inputs);
    for (const NamedFile& other : outputs.first(i)) {
      if (!other.path.empty()) check_apart(one, other);
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

void try_all(std::initializer_list<std::function<void()>> writes) {
  std::exception_ptr first;
  for (const std::function<void()>& write : writes) {
    try {
      write();
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace topksoftmax::bench
