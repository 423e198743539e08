// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "io/index_format.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/stored_array.hpp"

namespace topksoftmax {

/// Collects what an index consists of, to write it to a file.
class IndexWriter {
 public:
  /// What the file is of. Everything else is named after it.
  void kind(std::string_view kind) { set(index_key::kind, std::string(kind)); }

  /// Adds a tensor, which begins at a multiple of 64 bytes. Values of another type than the file's must be
  /// made of values of that.
  template <class T>
  void array(std::string_view name, std::vector<std::size_t> shape, const StoredArray<T>& values,
             DataType type = data_type_of<T>) {
    tensors_->push_back({prefix_ + std::string(name), type, std::move(shape), std::as_bytes(values.span())});
    owners_->push_back(values.owner());
  }

  void option(std::string_view name, std::string value) {
    set(index_key::options + std::string(name), std::move(value));
  }
  template <class T>
  void option(std::string_view name, const T& value) requires std::is_arithmetic_v<T> {
    char text[32];  // the shortest that reads back as the same value
    const auto written = std::to_chars(std::begin(text), std::end(text), value);
    option(name, std::string(std::begin(text), written.ptr));
  }
  template <class T>
  void option(std::string_view name, const std::optional<T>& value) {
    option(name, value.value());
  }

  /// Adds each option that it is called with: what a struct's visitor wants.
  auto options() {
    return [this](std::string_view name, const auto& value) { option(name, value); };
  }

  /// For another index within this one; throws Error where too many are in each other.
  IndexWriter part(std::string_view name) const {
    if (depth_ == kMostIndexParts) {
      throw Error("index file: more than " + std::to_string(kMostIndexParts) +
                  " indexes are within each other");
    }
    IndexWriter inner = *this;
    inner.prefix_ += std::string(name) + ".";
    ++inner.depth_;
    return inner;
  }

  /// Writes all of it, with what tells the layer.
  void write(const std::filesystem::path& path, const SoftmaxLayer& layer) const;

 private:
  void set(const std::string& key, std::string value) { (*metadata_)[prefix_ + key] = std::move(value); }

  // Parts share them.
  std::shared_ptr<SafetensorsMetadata> metadata_ = std::make_shared<SafetensorsMetadata>();
  std::shared_ptr<std::vector<TensorView>> tensors_ = std::make_shared<std::vector<TensorView>>();
  std::shared_ptr<std::vector<std::shared_ptr<const void>>> owners_ =
      std::make_shared<std::vector<std::shared_ptr<const void>>>();
  std::string prefix_;
  std::size_t depth_ = 0;
};

}  // namespace topksoftmax
