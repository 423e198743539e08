// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/types.hpp"

// What the readers of alignment lists share.
namespace TOPKSOFTMAX_NAMESPACE {

/// The ids of words, which are their places in a vocabulary that outlives this.
using WordIds = std::unordered_map<std::string_view, TokenId>;

/// Throws Error with `name` for words that are twice in the vocabulary; `side` is "source" or "target".
WordIds word_ids(std::span<const std::string> vocab, std::string_view name, const char* side);

/// The Error for a table that cannot be read.
Error unreadable(std::string_view name);

/// Throws Error where the file cannot be opened.
std::ifstream open_table(const std::filesystem::path& path);

}  // namespace TOPKSOFTMAX_NAMESPACE
