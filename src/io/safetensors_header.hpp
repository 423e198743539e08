// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The keys of a header that are not tensors of the user.
inline constexpr std::string_view kMetadataKey = "__metadata__";
inline constexpr std::string_view kPaddingPrefix = "__padding__";
inline constexpr std::string_view kReservedPrefix = "__";

struct SafetensorsHeader {
  TensorMetadata metadata;
  std::vector<TensorView> tensors;  ///< in the order of their bytes, padding included
};

/// Reads and checks the header of a mapped file; the tensors' bytes are views into `file`. `path` is for the
/// errors.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::filesystem::path& path);

/// The metadata alone, also of a file whose tensors are none that this library could read.
TensorMetadata parse_safetensors_metadata(std::span<const std::byte> file, const std::filesystem::path& path);

}  // namespace TOPKSOFTMAX_NAMESPACE
