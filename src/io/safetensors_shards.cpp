// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/safetensors_shards.hpp"

#include "io/file_bytes.hpp"
#include "io/shard_index.hpp"
#include "io/tensor_checks.hpp"
#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

SafetensorsShards SafetensorsShards::open(const std::filesystem::path& path) {
  SafetensorsShards shards;
  shards.path_ = path;
  if (path.extension() != ".json") {
    shards.files_.push_back(SafetensorsFile::open(path));
    for (const TensorView& tensor : shards.files_.front().tensors()) shards.index_.emplace(tensor.name, 0);
    return shards;
  }
  const ShardMap map = parse_shard_index(read_text(path, max_index_bytes, "an index"), path);
  std::map<std::string_view, std::size_t> places;
  for (const auto& [tensor, name] : map) places.emplace(name, 0);
  for (auto& [name, place] : places) {
    place = shards.files_.size();
    shards.files_.push_back(SafetensorsFile::open(path.parent_path() / name));
  }
  for (const auto& [tensor, name] : map) {
    const std::size_t place = places.at(name);
    const SafetensorsFile& file = shards.files_[place];
    if (!file.contains(tensor)) {
      throw Error(file.path().string() + ": has no tensor " + detail::in_quotes(tensor) + ", which " +
                  path.string() + " has in it");
    }
    shards.index_.emplace(tensor, place);
  }
  return shards;
}

const SafetensorsFile& SafetensorsShards::file(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) throw no_tensor_error(path_, name, index_);
  return files_[found->second];
}

}  // namespace TOPKSOFTMAX_NAMESPACE
