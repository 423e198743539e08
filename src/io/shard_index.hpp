// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The file that holds a tensor, by the tensor's name.
using ShardMap = std::map<std::string, std::string, std::less<>>;

/// Reads the weight_map of a model.safetensors.index.json, and checks that it names files of its own folder.
/// `path` is for the errors.
ShardMap parse_shard_index(std::string_view text, const std::filesystem::path& path);

}  // namespace TOPKSOFTMAX_NAMESPACE
