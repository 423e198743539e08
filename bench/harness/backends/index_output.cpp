// SPDX-License-Identifier: Apache-2.0
#include "harness/backends/index_output.hpp"

#include <ostream>

#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/rows/float32_copy.hpp"

namespace topksoftmax::bench {

SavedIndex save_index(const TopKSoftmax& backend, const std::filesystem::path& path, std::ostream& out) {
  save_index(backend, path);
  const SafetensorsFile file = SafetensorsFile::open(path);
  SavedIndex saved = {.kind = file.metadata().find("kind")->second,
                      .bytes = std::filesystem::file_size(path)};
  out << path.string() << ": " << backend.name() << ", an index of kind " << saved.kind << ", " << saved.bytes
      << " bytes\n";
  return saved;
}

std::unique_ptr<TopKSoftmax> load_index_for(const SoftmaxLayer& layer, const std::filesystem::path& path,
                                            const Registry& registry, const LoadOptions& options) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto type = file.metadata().find("dtype");
  const bool in_float32 = type != file.metadata().end() &&
                          type->second == data_type_name(DataType::float32) &&
                          layer.weight_type() != WeightType::float32;
  return load_index(path, in_float32 ? float32_copy(layer) : layer, registry, options);
}

}  // namespace topksoftmax::bench
