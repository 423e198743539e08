// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

/// The keys of an index's metadata.
namespace TOPKSOFTMAX_NAMESPACE::index_key {

/// The backend's kind: "l2s".
inline constexpr const char* kind = "kind";
/// The effort of queries that name none, where it is not the one that the backend was built with.
inline constexpr const char* effort = "effort";
/// The version of the format, a whole number.
inline constexpr const char* version = "format_version";
/// V of the layer.
inline constexpr const char* vocab = "vocab";
/// d of the layer.
inline constexpr const char* dim = "dim";
/// How the layer's weights are stored.
inline constexpr const char* dtype = "dtype";
/// The hash of W, b and the layer's transform.
inline constexpr const char* layer_hash = "layer_hash";
/// The hash of some rows of W, and of the rest.
inline constexpr const char* layer_sample = "layer_sample";
/// The hash of everything in the file but itself.
inline constexpr const char* checksum = "checksum";
inline constexpr const char* options = "options.";  ///< before the name of an option

/// Indexes within each other: nobody needs more, and a hostile file must not exhaust the stack.
inline constexpr std::size_t most_parts = 8;

}  // namespace TOPKSOFTMAX_NAMESPACE::index_key
