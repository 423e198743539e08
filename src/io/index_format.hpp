// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

/// The version of the format that is written, and the newest that is read.
inline constexpr std::uint64_t kIndexVersion = 1;

/// What an index file says of itself in its metadata.
namespace index_key {
inline constexpr const char* kind = "kind";
inline constexpr const char* version = "format_version";
inline constexpr const char* vocab = "vocab";
inline constexpr const char* dim = "dim";
inline constexpr const char* dtype = "dtype";
inline constexpr const char* layer_hash = "layer_hash";
inline constexpr const char* checksum = "checksum";
inline constexpr const char* options = "options.";  ///< before the name of an option
}  // namespace index_key

/// Indexes in which others lie: more is no use, and a hostile file must not exhaust the stack.
inline constexpr std::size_t kMostIndexParts = 8;

/// How the layer's weights are stored, in the names of safetensors.
std::string layer_dtype(const SoftmaxLayer& layer);

/// A hash of W and b, whatever the distance of the rows, in hexadecimal. Cost: reads them once.
std::string layer_hash(const SoftmaxLayer& layer);

/// A hash of the metadata but for the checksum itself, and of the tensors with their names, types and shapes,
/// in whatever order they are; in hexadecimal.
std::string index_checksum(const SafetensorsMetadata& metadata, std::span<const TensorView> tensors);

/// Opens an index file and checks that it is one, whole as a safetensors file, and of a version that can be
/// read. Throws Error saying which it is not.
SafetensorsFile open_index_file(const std::filesystem::path& path);

/// The end of an error about an index of this kind that is not as it was written.
std::string build_it_again(std::string_view kind);

}  // namespace topksoftmax
