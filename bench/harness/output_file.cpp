// SPDX-License-Identifier: Apache-2.0
#include "harness/output_file.hpp"

#include <cerrno>
#include <cstring>

#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {

std::ofstream open_output(const std::filesystem::path& path) {
  std::ofstream file(path);
  if (!file) throw Error(path.string() + ": cannot be written: " + std::strerror(errno));
  return file;
}

void close_output(std::ofstream& file, const std::filesystem::path& path) {
  file.close();
  if (!file) throw Error(path.string() + ": cannot be written: " + std::strerror(errno));
}

}  // namespace topksoftmax::bench
