// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// An Error about a tensor of a file: "PATH: tensor "NAME": WHAT".
Error tensor_error(const std::filesystem::path& path, std::string_view name, std::string_view what);

/// Places of tensors by their names.
using TensorPlaces = std::map<std::string, std::size_t, std::less<>>;

/// An Error about a tensor that a file does not have: it names those there whose names come next to this one
/// in the alphabet, which is where one lies that was misspelt.
Error no_tensor_error(const std::filesystem::path& path, std::string_view name, const TensorPlaces& there);

/// Bytes of a tensor of this shape whose values take `value_bytes` each. Returns false where the number does
/// not fit std::size_t or a size std::ptrdiff_t.
bool tensor_bytes(std::size_t value_bytes, std::span<const std::size_t> shape, std::size_t& bytes);

}  // namespace TOPKSOFTMAX_NAMESPACE
