// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/io/file_access.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The bytes of a file, from the beginning of a cache line on, and what keeps them.
struct FileBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> storage;
};

/// Those of a regular file. Throws Error where it cannot be opened, is not a regular file, cannot be mapped
/// or read, or ends while it is read.
FileBytes read_file(const std::filesystem::path& path, FileAccess access = FileAccess::mapped);

/// A file's bytes as text. Throws Error also for more than `limit` of them, which is that of `what`.
std::string read_text(const std::filesystem::path& path, std::size_t limit, std::string_view what);

}  // namespace TOPKSOFTMAX_NAMESPACE
