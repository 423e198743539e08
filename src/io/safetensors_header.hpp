// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/quoted.hpp"
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

/// An Error about a tensor of a file: "PATH: tensor "NAME": WHAT".
Error tensor_error(const std::filesystem::path& path, std::string_view name, std::string_view what);

/// Bytes of a tensor of this type and shape. Returns false where the number does not fit std::size_t or a
/// size std::ptrdiff_t.
bool tensor_bytes(DataType type, std::span<const std::size_t> shape, std::size_t& bytes);

}  // namespace TOPKSOFTMAX_NAMESPACE
