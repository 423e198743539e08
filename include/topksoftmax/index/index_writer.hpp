// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_key.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/rows/stored_array.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Collects what an index consists of: its kind, its options and its tensors. What is kept of a tensor is a
/// view, with a handle on its owner. save_index() writes all of it to a file.
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
    if constexpr (std::is_same_v<T, bool>) {
      option(name, std::string(value ? "1" : "0"));
    } else {
      char text[32];  // the shortest that reads back as the same value
      const auto written = std::to_chars(std::begin(text), std::end(text), value);
      option(name, std::string(std::begin(text), written.ptr));
    }
  }
  template <class T>
  void option(std::string_view name, const std::optional<T>& value) {
    option(name, value.value());
  }

  /// Adds each option that it is called with: what a struct's visitor wants (see VisitedOptions). A choice is
  /// saved by its name.
  auto options() {
    return [this](std::string_view name, const auto& value, const auto&... description) {
      visited(name, value, description...);
    };
  }

  /// For another index within this one; throws Error where too many are in each other.
  IndexWriter part(std::string_view name) const {
    if (depth_ == index_key::most_parts) {
      throw Error("index file: more than " + std::to_string(index_key::most_parts) +
                  " indexes are within each other");
    }
    IndexWriter inner = *this;
    inner.prefix_ += std::string(name) + ".";
    ++inner.depth_;
    return inner;
  }

  const TensorMetadata& metadata() const { return *metadata_; }
  const std::vector<TensorView>& tensors() const { return *tensors_; }

 private:
  template <class T>
  void visited(std::string_view name, const T& value) {
    option(name, value);
  }
  template <class T, class... Limits>
  void visited(std::string_view name, const T& value, std::string_view /*help*/, const Limits&...) {
    option(name, value);
  }
  template <class Enum, std::size_t N>
  void visited(std::string_view name, Enum value, std::string_view /*help*/,
               const OptionChoices<Enum, N>& choices) {
    option(name, std::string(choices.name_of(value)));
  }
  template <VisitedOptions Options>
  void visited(std::string_view /*name*/, const Options& inner) {
    Options::visit(inner, options());
  }

  void set(const std::string& key, std::string value) { (*metadata_)[prefix_ + key] = std::move(value); }

  // Parts share them.
  std::shared_ptr<TensorMetadata> metadata_ = std::make_shared<TensorMetadata>();
  std::shared_ptr<std::vector<TensorView>> tensors_ = std::make_shared<std::vector<TensorView>>();
  std::shared_ptr<std::vector<std::shared_ptr<const void>>> owners_ =
      std::make_shared<std::vector<std::shared_ptr<const void>>>();
  std::string prefix_;
  std::size_t depth_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
