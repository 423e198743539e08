// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// A file that an option names, to be read or written.
struct NamedFile {
  std::string option;          ///< as "--json"
  std::filesystem::path path;  ///< empty: none
};

/// Where a command prints what people read: standard output, or nowhere where one of its files is that.
std::ostream& text_output(std::initializer_list<std::filesystem::path> files, const Invocation& invocation);

/// Throws UsageError where an output ("-" is standard output) is a file that is read, or another output: one
/// would destroy the other, or be mixed with it. Of a model's folder, and of the index of its shards, all its
/// files are read; of one .safetensors file also the config.json and an index of shards beside it.
void check_distinct(std::span<const NamedFile> outputs, std::span<const NamedFile> inputs);

/// Asked before anything is measured, so that a wrong name costs nothing. Throws the Error that
/// write_output() to this path would throw before it writes a byte; leaves everything as it was.
void check_output(const std::filesystem::path& path);

/// Puts a text in the place of the file that is there, if any, which until then stays as it was; writes to a
/// device or a pipe, and at the end of a file that standard output or error goes to; "-" is standard output.
/// Throws Error where that fails.
void write_output(const std::filesystem::path& path, std::string_view text);

/// Likewise, with a sign in the place of bytes that are no UTF-8: names of files may have such.
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& json);

/// Calls each of these, in their order, whether or not those before it threw: what was measured for hours is
/// not lost with the first file that cannot be written. Throws again, at the end, what was thrown first.
void try_all(std::initializer_list<std::function<void()>> writes);

}  // namespace topksoftmax::bench
