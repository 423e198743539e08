// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// An Error about a tensor of a file: "PATH: tensor "NAME": WHAT".
Error tensor_error(const std::filesystem::path& path, std::string_view name, std::string_view what);

/// Bytes of a tensor of this shape whose values take `value_bytes` each. Returns false where the number does
/// not fit std::size_t or a size std::ptrdiff_t.
bool tensor_bytes(std::size_t value_bytes, std::span<const std::size_t> shape, std::size_t& bytes);

}  // namespace TOPKSOFTMAX_NAMESPACE
