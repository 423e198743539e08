// SPDX-License-Identifier: Apache-2.0
#include "harness/index_output.hpp"

#include <ostream>

#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax::bench {

void save_index(const TopKSoftmax& backend, const std::filesystem::path& path, std::ostream& out) {
  save_index(backend, path);
  const SafetensorsFile file = SafetensorsFile::open(path);
  out << path.string() << ": " << backend.name() << ", an index of kind "
      << file.metadata().find("kind")->second << ", " << std::filesystem::file_size(path) << " bytes\n";
}

}  // namespace topksoftmax::bench
