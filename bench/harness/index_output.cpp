// SPDX-License-Identifier: Apache-2.0
#include "harness/index_output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ostream>
#include <system_error>

#include "harness/usage_error.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax::bench {

void check_index_output(const std::filesystem::path& path, const std::filesystem::path& head) {
  std::error_code absent;
  if (std::filesystem::equivalent(path, head, absent)) {
    throw UsageError("--out is the head file " + head.string() + " itself");
  }
  if (std::filesystem::is_directory(path)) throw Error(path.string() + ": cannot be written: it is a folder");
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(path.string() + ": cannot be written: " + std::strerror(errno));
  }
}

void save_index(const TopKSoftmax& backend, const std::filesystem::path& path, std::ostream& out) {
  backend.save(path);
  const SafetensorsFile file = SafetensorsFile::open(path);
  out << path.string() << ": " << backend.name() << ", an index of kind "
      << file.metadata().find("kind")->second << ", " << std::filesystem::file_size(path) << " bytes\n";
}

}  // namespace topksoftmax::bench
