// SPDX-License-Identifier: Apache-2.0
#include "io/tensor_checks.hpp"

#include <limits>
#include <string>

#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

Error tensor_error(const std::filesystem::path& path, std::string_view name, std::string_view what) {
  return Error(path.string() + ": tensor " + detail::in_quotes(name) + ": " + std::string(what));
}

bool tensor_bytes(std::size_t value_bytes, std::span<const std::size_t> shape, std::size_t& bytes) {
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  bytes = value_bytes;
  for (const std::size_t size : shape) {
    if (size > kMost || (size != 0 && bytes > kMost / size)) return false;
    bytes *= size;
  }
  return true;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
