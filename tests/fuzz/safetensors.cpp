// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/safetensors.hpp"

#include <vector>

#include "fuzz/attempt.hpp"
#include "fuzz/check_token_ids.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"
#include "topksoftmax/io/checkpoint.hpp"

namespace topksoftmax::fuzz {
namespace {

template <class T>
void read_as(const SafetensorsFile& file, const TensorView& tensor) {
  attempt([&] {
    std::vector<T> values(tensor.size());
    file.read(tensor.name, std::span<T>(values));
  });
  attempt([&] {
    T sum{};
    for (const T& value : file.values<T>(tensor.name)) sum = value;
    static_cast<void>(sum);
  });
}

}  // namespace

void safetensors(Bytes input) {
  const MemoryFile memory(safetensors_bytes(input));
  attempt([&] {
    const SafetensorsFile file = SafetensorsFile::open(memory.path());
    std::size_t bytes = 0;
    for (const TensorView& tensor : file.tensors()) {
      require(file.contains(tensor.name), "a tensor is found by its name");
      bytes += tensor.bytes.size();
      if (data_type_size(tensor.type) == 0) {
        attempt([&] { file.tensor(tensor.name); });
        continue;
      }
      require(tensor.size() * data_type_size(tensor.type) == tensor.bytes.size(),
              "a tensor has as many values as its shape says");
      read_as<float>(file, tensor);
      read_as<double>(file, tensor);
      read_as<std::int32_t>(file, tensor);
      read_as<std::int64_t>(file, tensor);
      attempt([&] { file.matrix(tensor.name); });
      attempt([&] { file.vector(tensor.name); });
    }
    require(bytes <= input.size(), "no byte belongs to two tensors");
  });
  attempt([&] {
    const ModelCheckpoint model = {
        .name = {}, .tensors = SafetensorsShards::open(memory.path()), .config = {}};
    const CheckpointHead head = find_checkpoint_head(model.tensors, model.config);
    const SoftmaxLayer layer = checkpoint_layer(model, head);
    check_token_ids(layer, checkpoint_token_ids(model.tensors, head, layer.vocab()));
  });
}

}  // namespace topksoftmax::fuzz
