// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "fuzz/attempt.hpp"
#include "fuzz/targets.hpp"
#include "topksoftmax/io/safetensors_shards.hpp"

namespace topksoftmax::fuzz {
namespace {

/// A folder with the shards, to which an index is added.
class Checkpoint {
 public:
  Checkpoint() {
    std::string pattern = (std::filesystem::temp_directory_path() / "topksoftmax-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
    folder_ = pattern;
    const std::vector<float> values = {1.0F, 2.0F};
    write_safetensors(folder_ / "a.safetensors",
                      std::array{tensor_view("one", {2}, values), tensor_view("two", {1, 2}, values)});
    write_safetensors(folder_ / "b.safetensors", std::array{tensor_view("three", {2, 1}, values)});
  }
  ~Checkpoint() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  std::filesystem::path with(Bytes index) const {
    const std::filesystem::path path = folder_ / "model.safetensors.index.json";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(index.data()), static_cast<std::streamsize>(index.size()));
    return path;
  }

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace

void shard_index(Bytes input) {
  static const Checkpoint checkpoint;
  attempt([&] {
    const SafetensorsShards shards = SafetensorsShards::open(checkpoint.with(input));
    for (const SafetensorsFile& file : shards.files()) {
      require(file.path().parent_path() == checkpoint.folder(), "no file lies in another folder");
    }
    for (const char* const name : {"one", "two", "three"}) {
      if (!shards.contains(name)) continue;
      std::array<float, 2> values = {};
      shards.file(name).read(name, std::span<float>(values));
      require(values == std::array{1.0F, 2.0F}, "a tensor is that of its file");
    }
    require(!shards.contains("four"), "there are no tensors but those of the files");
  });
}

}  // namespace topksoftmax::fuzz
