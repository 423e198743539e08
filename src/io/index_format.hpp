// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_key.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The version of the format that is written, and the newest that is read.
inline constexpr std::uint64_t kIndexVersion = 1;

/// How the layer's weights are stored, in the names of safetensors, or of ggml where it has none.
std::string layer_dtype(const SoftmaxLayer& layer);

/// A hash of W and b, whatever the distance of the rows, in hexadecimal. Cost: reads them once.
std::string layer_hash(const SoftmaxLayer& layer);

/// The same of 1,024 rows of W that are evenly spread, with all of the rest. Cost: reads them.
std::string layer_sample(const SoftmaxLayer& layer);

/// A hash of the metadata but for the checksum itself, and of the tensors with their names, types and shapes,
/// in whatever order they are; in hexadecimal.
std::string index_checksum(const TensorMetadata& metadata, std::span<const TensorView> tensors);

/// Opens an index file and checks that it is one, whole as a safetensors file, and of a version that can be
/// read. Throws Error saying which it is not.
SafetensorsFile open_index_file(const std::filesystem::path& path, FileAccess access = FileAccess::mapped);

}  // namespace TOPKSOFTMAX_NAMESPACE
