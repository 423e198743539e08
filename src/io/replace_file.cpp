// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/replace_file.hpp"

#include "io/replacing_file.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

void check_target(const std::filesystem::path& path) {
  const ReplacingFile never_committed(path);
}

void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  ReplacingFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace TOPKSOFTMAX_NAMESPACE
