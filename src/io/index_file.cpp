// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/index_file.hpp"

#include <string>
#include <utility>

#include "io/index_format.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

void check_layer(const IndexContents& index, const SoftmaxLayer& layer, LayerCheck check) {
  const std::string& kind = index.metadata.find(index_key::kind)->second;
  const auto differs = [&](const char* key, const std::string& own) {
    const auto recorded = index.metadata.find(key);
    if (recorded == index.metadata.end()) {
      throw Error(index.source + ": its metadata has no " + key + "; it is damaged" +
                  detail::build_it_again(kind));
    }
    if (recorded->second == own) return;
    throw Error(index.source + ": was built for another layer: its " + key + " is " +
                detail::in_quotes(recorded->second) + ", that of this layer " + detail::in_quotes(own) +
                detail::build_it_again(kind));
  };
  differs(index_key::vocab, std::to_string(layer.vocab()));
  differs(index_key::dim, std::to_string(layer.dim()));
  differs(index_key::dtype, layer_dtype(layer));
  if (check == LayerCheck::sampled && index.metadata.contains(index_key::layer_sample)) {
    return differs(index_key::layer_sample, layer_sample(layer));
  }
  differs(index_key::layer_hash, layer_hash(layer));
}

IndexContents contents_of(const std::filesystem::path& path, const SafetensorsFile& file) {
  return {path.string(), file.metadata(), file.tensors(), file.storage()};
}

}  // namespace

std::unique_ptr<TopKSoftmax> detail::NoParts::load(const IndexReader& in) const {
  throw Error(in.source() + ": holds an index of kind " + in_quotes(in.kind()) +
              " within another; load it with load_index(path, layer), which knows every kind");
}

void save_index(const TopKSoftmax& backend, const std::filesystem::path& path) {
  IndexWriter out;
  backend.save(out);
  const SoftmaxLayer& layer = backend.layer();
  TensorMetadata metadata = out.metadata();
  metadata[index_key::version] = std::to_string(kIndexVersion);
  metadata[index_key::vocab] = std::to_string(layer.vocab());
  metadata[index_key::dim] = std::to_string(layer.dim());
  metadata[index_key::dtype] = layer_dtype(layer);
  metadata[index_key::layer_hash] = layer_hash(layer);
  metadata[index_key::layer_sample] = layer_sample(layer);
  metadata[index_key::checksum] = index_checksum(metadata, out.tensors());
  write_safetensors(path, out.tensors(), metadata);
}

IndexReader open_index(const std::filesystem::path& path, SoftmaxLayer layer, const BackendLoader& loader,
                       std::string_view kind, const LoadOptions& options) {
  IndexContents contents = contents_of(path, open_index_file(path, options.access));
  const std::string found = contents.metadata.find(index_key::kind)->second;
  if (!kind.empty() && found != kind) {
    throw Error(path.string() + ": holds an index of kind " + detail::in_quotes(found) + ", expected " +
                detail::in_quotes(kind) + "; load_index() loads any kind");
  }
  check_layer(contents, layer, options.layer_check);
  return IndexReader(std::move(contents), std::move(layer), loader);
}

void verify_layer(const std::filesystem::path& path, const SoftmaxLayer& layer) {
  check_layer(contents_of(path, open_index_file(path)), layer, LayerCheck::whole);
}

void verify_index(const std::filesystem::path& path) {
  const SafetensorsFile file = open_index_file(path);
  const auto recorded = file.metadata().find(index_key::checksum);
  const std::string found = index_checksum(file.metadata(), file.tensors());
  if (recorded != file.metadata().end() && recorded->second == found) return;
  throw Error(path.string() + ": its checksum is " +
              (recorded == file.metadata().end() ? "missing" : detail::in_quotes(recorded->second)) +
              ", that of what it holds " + detail::in_quotes(found) + "; it is damaged" +
              detail::build_it_again(file.metadata().find(index_key::kind)->second));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
