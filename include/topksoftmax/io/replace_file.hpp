// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Throws the Error that save_index() or replace_file() to this path would throw before it writes a
/// byte: for a folder, a device or a pipe, and where no file can be made. For programs that build for
/// minutes, and would rather know before. Leaves everything as it was.
TOPKSOFTMAX_EXPORT void check_target(const std::filesystem::path& path);

/// Writes a file beside `path`, syncs it, and renames it: on any failure (Error) the old file stays whole and
/// nothing is left behind. A file that is replaced passes its permissions on; a symbolic link stands for the
/// file that it names.
TOPKSOFTMAX_EXPORT void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace TOPKSOFTMAX_NAMESPACE
