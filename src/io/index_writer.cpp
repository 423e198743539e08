// SPDX-License-Identifier: Apache-2.0
#include "io/index_writer.hpp"

namespace topksoftmax {

void IndexWriter::write(const std::filesystem::path& path, const SoftmaxLayer& layer) const {
  SafetensorsMetadata metadata = *metadata_;
  metadata[index_key::version] = std::to_string(kIndexVersion);
  metadata[index_key::vocab] = std::to_string(layer.vocab());
  metadata[index_key::dim] = std::to_string(layer.dim());
  metadata[index_key::dtype] = layer_dtype(layer);
  metadata[index_key::layer_hash] = layer_hash(layer);
  metadata[index_key::checksum] = index_checksum(metadata, *tensors_);
  write_safetensors(path, *tensors_, metadata);
}

}  // namespace topksoftmax
