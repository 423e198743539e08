// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::testing {

inline constexpr Eigen::Index kVocab = 700;
inline constexpr Eigen::Index kDim = 24;

/// A layer and contexts, the same for all tests.
struct World {
  SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  RowMajorMatrix train = clustered_contexts(600, kDim, 12, 2);
  RowMajorMatrix test = random_matrix(20, kDim, 5);
};

inline const World& world() {
  static const World made;
  return made;
}

/// The message with which an index of these bytes is refused, or "".
inline std::string refusal(const std::string& bytes, const SoftmaxLayer& layer, const BackendLoader& loader) {
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.write("some.index", bytes);
  const std::string message = error_of([&] { load_index(path, layer, loader); });
  if (!message.empty()) {
    EXPECT_NE(message.find("some.index: "), std::string::npos) << message;
  }
  return message;
}

/// The file that `backend` saves.
inline std::string saved(const TopKSoftmax& backend) {
  const TemporaryFolder folder(memory_folder());
  save_index(backend, folder.path() / "f");
  return read_bytes(folder.path() / "f");
}

/// A safetensors file taken apart, to be written with changes.
struct Parts {
  TensorMetadata metadata;
  std::map<std::string, TensorView> tensors;
  std::map<std::string, std::string> bytes;

  explicit Parts(const std::string& file) {
    const TemporaryFolder folder(memory_folder());
    const SafetensorsFile open = SafetensorsFile::open(folder.write("f", file));
    metadata = open.metadata();
    for (const TensorView& tensor : open.tensors()) {
      tensors[tensor.name] = tensor;
      bytes[tensor.name].assign(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    }
  }

  template <class T>
  void set(const std::string& tensor, std::size_t at, T value) {
    std::memcpy(bytes.at(tensor).data() + at * sizeof(T), &value, sizeof(T));
  }

  /// Cuts the last dimension's, or the only, size down by one row.
  void shorten(const std::string& tensor) {
    TensorView& view = tensors.at(tensor);
    std::string& of = bytes.at(tensor);
    of.resize(of.size() - of.size() / view.shape[0]);
    --view.shape[0];
  }

  /// Puts it together again, every tensor at a multiple of `alignment` bytes. (The library's own writer would
  /// wait for the disk.)
  std::string file(std::size_t alignment = 64) const {
    std::string header = R"({"__metadata__":{)";
    for (const auto& [key, value] : metadata) {
      header += (header.back() == '{' ? "\"" : ",\"") + key + "\":\"" + value + "\"";
    }
    header += "}";
    std::string data;
    const auto add = [&](const std::string& name, DataType type, const std::vector<std::size_t>& shape,
                         const std::string& values) {
      std::string sizes;
      for (const std::size_t size : shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
      header += ",\"" + name + R"(":{"dtype":")" + std::string(data_type_name(type)) + R"(","shape":[)" +
                sizes + R"(],"data_offsets":[)" + std::to_string(data.size()) + "," +
                std::to_string(data.size() + values.size()) + "]}";
      data += values;
    };
    for (const auto& [name, view] : tensors) {
      add(name, view.type, view.shape, bytes.at(name));
      const std::size_t gap = (alignment - data.size() % alignment) % alignment;
      if (gap > 0) add("__padding__." + name, DataType::uint8, {gap}, std::string(gap, '\0'));
    }
    header += "}";
    header.resize((header.size() + 8 + alignment - 1) / alignment * alignment - 8, ' ');
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
  }
};

}  // namespace topksoftmax::testing
