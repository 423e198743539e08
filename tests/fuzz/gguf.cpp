// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/gguf.hpp"

#include <vector>

#include "fuzz/attempt.hpp"
#include "fuzz/check_token_ids.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"
#include "topksoftmax/io/gguf_head.hpp"
#include "topksoftmax/io/gguf_layer.hpp"

namespace topksoftmax::fuzz {
namespace {

/// Looks an entry up as everything that it might be.
void look_up(const GgufFile& file, const GgufValue& value, std::size_t size) {
  attempt([&] { require(file.number(value.name).has_value(), "an entry is found by its name"); });
  attempt([&] { require(file.text(value.name)->size() < size, "a text lies in the file"); });
  attempt([&] {
    std::size_t sum = 0;
    const std::vector<std::string_view> texts = file.texts(value.name).value();
    for (const std::string_view text : texts) sum += text.size();
    require(texts.size() == value.count && sum < size, "texts lie in the file");
  });
}

}  // namespace

void gguf(Bytes input) {
  const MemoryFile memory(std::string(input.begin(), input.end()));
  attempt([&] {
    const GgufFile file = GgufFile::open(memory.path());
    for (const GgufValue& value : file.metadata()) look_up(file, value, input.size());
    std::size_t bytes = 0;
    for (const GgufTensor& tensor : file.tensors()) {
      require(file.contains(tensor.name), "a tensor is found by its name");
      require(tensor.shape.size() <= GgufFile::max_rank, "a shape has no more sizes than the format allows");
      const std::optional<GgmlBlock> block = ggml_block(tensor.type);
      if (block) {
        std::size_t values = 1;
        for (const std::size_t size : tensor.shape) values *= size;
        require(values / block->values * block->bytes == tensor.bytes.size(), "a tensor has all its blocks");
        require(&file.tensor(tensor.name) == &tensor, "a tensor of a known type is given");
      }
      unsigned sum = 0;
      for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
      bytes += tensor.bytes.size();
      static_cast<void>(sum);
    }
    require(bytes <= input.size(), "no byte belongs to two tensors");
    const GgufHead head = find_gguf_head(file);
    require(head.weight.shape.size() == 2 && (!head.bias || head.bias->shape[0] == head.vocab()),
            "a head has a row for every bias");
    check_token_ids(gguf_layer(file), gguf_token_ids(file, head));
  });
}

}  // namespace topksoftmax::fuzz
