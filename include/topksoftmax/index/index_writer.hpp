// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/numeric/wide_number.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Collects what an index consists of: its kind, its options and its tensors. Of a tensor it keeps a view,
/// with a handle on its owner. save_index() writes all of it to a file.
class TOPKSOFTMAX_EXPORT IndexWriter {
 public:
  IndexWriter();

  /// What the file is of. Everything else is named after it.
  void kind(std::string_view kind);

  /// The effort of queries that name none.
  void effort(std::size_t effort);

  /// Adds a tensor, which begins at a multiple of 64 bytes. Values of another type than the file's must be
  /// made of values of that.
  template <class T>
  void array(std::string_view name, std::initializer_list<std::size_t> shape, const StoredArray<T>& values,
             DataType type = data_type_of<T>) {
    add(name, type, {shape.begin(), shape.size()}, std::as_bytes(values.span()), values.owner());
  }
  /// The same for a shape that is a vector.
  template <class T>
  void array(std::string_view name, const std::vector<std::size_t>& shape, const StoredArray<T>& values,
             DataType type = data_type_of<T>) {
    add(name, type, shape, std::as_bytes(values.span()), values.owner());
  }

  /// Adds an option as text.
  void option(std::string_view name, std::string value);
  /// Adds a number, or a bool as 1 or 0.
  template <class T>
  void option(std::string_view name, const T& value) requires std::is_arithmetic_v<T> {
    if constexpr (std::is_same_v<T, bool>) {
      option(name, std::string(value ? "1" : "0"));
    } else {
      number(name, static_cast<detail::WideNumber<T>>(value));
    }
  }
  /// Adds the value of an optional that has one.
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

  /// For another index within this one; throws Error where indexes are nested too deeply.
  IndexWriter part(std::string_view name) const;

  /// All that was added but the tensors.
  const TensorMetadata& metadata() const;
  /// The tensors in the order in which they were added.
  const std::vector<TensorView>& tensors() const;

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

  // Written as the shortest text that reads back as the same value.
  void number(std::string_view name, double value);
  void number(std::string_view name, float value);
  void number(std::string_view name, std::int64_t value);
  void number(std::string_view name, std::uint64_t value);

  void add(std::string_view name, DataType type, std::span<const std::size_t> shape,
           std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner);
  void set(const std::string& key, std::string value);

  struct Collected;

  std::shared_ptr<Collected> collected_;  ///< parts share it
  std::string prefix_;
  std::size_t depth_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/index/index_writer-inl.hpp"
#endif
