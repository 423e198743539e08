// SPDX-License-Identifier: Apache-2.0
#include "io/tensor_checks.hpp"

#include <limits>
#include <string>

#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

Error tensor_error(const std::filesystem::path& path, std::string_view name, std::string_view what) {
  return Error(path.string() + ": tensor " + detail::in_quotes(name) + ": " + std::string(what));
}

Error no_tensor_error(const std::filesystem::path& path, std::string_view name, const TensorPlaces& there) {
  constexpr int kBefore = 2;
  constexpr int kShown = 4;
  auto near = there.lower_bound(name);
  for (int i = 0; i < kBefore && near != there.begin(); ++i) --near;
  std::string names;
  for (int i = 0; i < kShown && near != there.end(); ++i, ++near) {
    names += (names.empty() ? "; nearest by name: " : ", ") + detail::in_quotes(near->first);
  }
  return Error(path.string() + ": has no tensor " + detail::in_quotes(name) + names);
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
