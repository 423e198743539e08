// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

/// What an index says of itself in its metadata.
namespace TOPKSOFTMAX_NAMESPACE::index_key {

inline constexpr const char* kind = "kind";
inline constexpr const char* version = "format_version";
inline constexpr const char* vocab = "vocab";
inline constexpr const char* dim = "dim";
inline constexpr const char* dtype = "dtype";
inline constexpr const char* layer_hash = "layer_hash";
inline constexpr const char* checksum = "checksum";
inline constexpr const char* options = "options.";  ///< before the name of an option

/// Indexes in which others lie: more is no use, and a hostile file must not exhaust the stack.
inline constexpr std::size_t most_parts = 8;

}  // namespace TOPKSOFTMAX_NAMESPACE::index_key
