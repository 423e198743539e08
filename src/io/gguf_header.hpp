// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/io/gguf.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a file begins with.
inline constexpr std::string_view kGgufMagic = "GGUF";

struct GgufHeader {
  std::vector<GgufValue> metadata;  ///< in the order of the file
  std::vector<GgufTensor> tensors;  ///< in the order of their bytes
};

/// Reads and checks all of a mapped file but the tensors' bytes, which are views into `file`, as the
/// metadata's are. `path` is for the errors.
GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::filesystem::path& path);

/// A number of the metadata that was checked.
double gguf_number(const GgufValue& value);

/// The texts of the metadata that was checked: one, or those of an array.
std::vector<std::string_view> gguf_texts(const GgufValue& value);

/// The type of an entry in words: "a string", "an array of int32".
std::string gguf_type_text(const GgufValue& value);

}  // namespace TOPKSOFTMAX_NAMESPACE
