// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "io/index_format.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/stored_array.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// An index file that is open, with the layer that it was built for. Whatever is read of it is checked; every
/// failure is an Error that says what is wrong and what to do.
class IndexReader {
 public:
  /// Stands for any size in a shape.
  static constexpr std::size_t any = SafetensorsFile::any_size;
  using Shape = std::initializer_list<std::size_t>;

  /// Throws Error where it is no index file that can be read, of another kind (any will do if none is given),
  /// or was built for another layer.
  static IndexReader open(const std::filesystem::path& path, SoftmaxLayer layer, std::string_view kind = {});

  const SoftmaxLayer& layer() const { return file_->layer; }
  std::size_t vocab() const { return layer().vocab(); }
  std::size_t dim() const { return layer().dim(); }
  const std::string& kind() const { return kind_; }
  const std::filesystem::path& path() const { return file_->tensors.path(); }

  /// The index of this name within this one.
  IndexReader part(std::string_view name) const;

  /// A tensor of this shape, where it lies in the file; a copy only if it does not begin on a cache line
  /// there, as every tensor does that was written by us. T must be made of values of the stored type, and
  /// fill whole rows.
  template <class T>
  StoredArray<T> array(std::string_view name, Shape shape, DataType type = data_type_of<T>) const {
    const auto [bytes, owner] = aligned_bytes(name, shape, type);
    return {{reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)}, owner};
  }

  /// Values of which none is NaN. (Infinite ones are what overflowed when the index was built.)
  StoredArray<float> floats(std::string_view name, Shape shape) const;
  StoredArray<double> doubles(std::string_view name, Shape shape) const;
  /// Tokens below V.
  StoredArray<TokenId> tokens(std::string_view name, Shape shape) const;
  /// The same, none twice.
  StoredArray<TokenId> distinct_tokens(std::string_view name, Shape shape) const;
  /// Offsets that never fall, from `begin` to `end`.
  StoredArray<std::uint64_t> offsets(std::string_view name, Shape shape, std::size_t end,
                                     std::size_t begin = 0) const;

  /// Throws Error unless `values`, which are the tensor `name` or of it, never fall, from `begin` to `end`.
  template <class T>
  void check_offsets(std::string_view name, std::span<const T> values, std::size_t end,
                     std::size_t begin = 0) const {
    if (!values.empty() && values.front() == begin && values.back() == end &&
        std::is_sorted(values.begin(), values.end())) {
      return;
    }
    throw damaged(name, "does not rise from " + std::to_string(begin) + " to " + std::to_string(end));
  }

  /// Reads an option.
  template <class T>
  void option(std::string_view name, T& value) const {
    const std::string text = option_text(name);
    if constexpr (std::is_same_v<T, std::string>) {
      value = text;
    } else {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size()) throw bad_option(name, text);
    }
  }
  template <class T>
  void option(std::string_view name, std::optional<T>& value) const {
    option(name, value.emplace());
  }

  /// Reads each option that it is called with: what a struct's visitor wants.
  auto options() const {
    return [this](std::string_view name, auto& value) { option(name, value); };
  }

  /// An Error about a tensor that cannot be as it was written.
  Error damaged(std::string_view tensor, const std::string& what) const;

  /// Calls what throws Error where something is not usable, and adds to the error what file it was and what
  /// to do.
  template <class Check>
  void check(const Check& check) const {
    try {
      check();
    } catch (const Error& error) {
      throw unusable(error.what());
    }
  }

 private:
  struct File {
    SafetensorsFile tensors;
    SoftmaxLayer layer;
  };
  struct Bytes {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };

  /// `outer` is the kind that errors speak of until its own is known.
  IndexReader(std::shared_ptr<const File> file, std::string prefix, std::size_t depth, std::string outer);

  const std::string* find(const std::string& key) const;
  const std::string& metadata(const char* key) const;
  void check_kind(std::string_view expected) const;
  void check_layer() const;

  template <class T>
  void check_numbers(std::string_view name, std::span<const T> values) const {
    int found = 0;  // without a branch, so that compilers turn it into vectors
    for (const T value : values) found |= std::isnan(value) ? 1 : 0;
    if (found != 0) throw damaged(name, "has a value that is NaN");
  }

  Bytes aligned_bytes(std::string_view name, Shape shape, DataType type) const;
  std::string option_text(std::string_view name) const;
  Error bad_option(std::string_view name, std::string_view text) const;
  Error unusable(std::string_view what) const;

  std::shared_ptr<const File> file_;
  std::string prefix_;
  std::size_t depth_;
  std::string kind_;
};

/// The backend of an index, whatever its kind.
std::unique_ptr<TopKSoftmax> load_any(const IndexReader& in);

}  // namespace topksoftmax
