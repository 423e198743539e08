// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/numeric/wide_number.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The end of an error about an index of this kind that is not as it was written.
TOPKSOFTMAX_EXPORT std::string build_it_again(std::string_view kind);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

class IndexReader;

/// What an index consists of, in an open file or anywhere else.
struct IndexContents {
  std::string source;  ///< what errors call it: the file's path
  /// Names and values, as IndexWriter has put them there.
  TensorMetadata metadata;
  /// The arrays, in any order.
  std::vector<TensorView> tensors;
  std::shared_ptr<const void> storage;  ///< what keeps the tensors' bytes alive
};

/// Makes backends of indexes, whatever their kinds.
class BackendLoader {
 public:
  /// The backend of an index. Throws Error for one of an unknown kind and for what cannot be used.
  virtual std::unique_ptr<TopKSoftmax> load(const IndexReader& in) const = 0;

 protected:
  ~BackendLoader() = default;
};

/// An index, with the layer that it was built for. Everything read from it is checked. Every failure is an
/// Error that says what is wrong and what to do.
class TOPKSOFTMAX_EXPORT IndexReader {
 public:
  /// Stands for any size in a shape.
  static constexpr std::size_t any = TensorView::any_size;
  /// An expected shape; `any` stands for a size that may be any.
  using Shape = std::initializer_list<std::size_t>;

  /// `loader` makes backends of the indexes within this one, and must outlive the reader. Throws Error where
  /// the metadata names no kind.
  IndexReader(IndexContents contents, SoftmaxLayer layer, const BackendLoader& loader);

  /// The layer that the index was built for.
  const SoftmaxLayer& layer() const;
  /// V of the layer.
  std::size_t vocab() const { return layer().vocab(); }
  /// d of the layer.
  std::size_t dim() const { return layer().dim(); }
  /// The kind of backend that it is of.
  const std::string& kind() const { return kind_; }
  /// What errors call the index.
  const std::string& source() const;

  /// The effort of queries that name none; 0: what the backend was built with. See load_usual().
  std::size_t effort() const;

  /// Whether the index has a tensor, or an option, of this name: some are optional.
  bool has_tensor(std::string_view name) const;
  /// Whether it has an option of this name.
  bool has_option(std::string_view name) const;

  /// The index of this name within this one.
  IndexReader part(std::string_view name) const;

  /// The backend of the index of this name within this one, whatever its kind.
  std::unique_ptr<TopKSoftmax> load_part(std::string_view name) const;

  /// A tensor of this shape, where it lies in the file; a copy only if it does not begin on a cache line
  /// there, as every tensor does that this library has written. T must be made of values of the stored type,
  /// and fill whole rows.
  template <class T>
  StoredArray<T> array(std::string_view name, Shape shape, DataType type = data_type_of<T>) const {
    const auto [bytes, owner] = aligned_bytes(name, shape, type);
    return {{reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)}, owner};
  }

  /// Values, none of them NaN. (Infinite ones overflowed when the index was built.)
  StoredArray<float> floats(std::string_view name, Shape shape) const;
  /// The same in float64.
  StoredArray<double> doubles(std::string_view name, Shape shape) const;
  /// Tokens below V.
  StoredArray<TokenId> tokens(std::string_view name, Shape shape) const;
  /// The same, none twice.
  StoredArray<TokenId> distinct_tokens(std::string_view name, Shape shape) const;
  /// Offsets that never decrease, from `begin` to `end`.
  StoredArray<std::uint64_t> offsets(std::string_view name, Shape shape, std::size_t end,
                                     std::size_t begin = 0) const;

  /// Throws Error unless `values`, which are the tensor `name` or of it, never decrease, from `begin` to
  /// `end`.
  template <class T>
  void check_offsets(std::string_view name, std::span<const T> values, std::size_t end,
                     std::size_t begin = 0) const {
    if (!values.empty() && values.front() == begin && values.back() == end &&
        std::is_sorted(values.begin(), values.end())) {
      return;
    }
    throw not_rising(name, begin, end);
  }

  /// Reads an option: a number, a bool (1 or 0) or a text.
  template <class T>
  void option(std::string_view name, T& value) const {
    if constexpr (std::is_same_v<T, std::string>) {
      value = option_text(name);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = flag(name);
    } else if constexpr (std::is_floating_point_v<T>) {
      number(name, value);
    } else {
      detail::WideNumber<T> wide = 0;
      number(name, wide);
      if (!std::in_range<T>(wide)) throw bad_option(name, option_text(name), "a number");
      value = static_cast<T>(wide);
    }
  }
  /// The same into an optional, which has a value afterwards.
  template <class T>
  void option(std::string_view name, std::optional<T>& value) const {
    option(name, value.emplace());
  }

  /// Reads each option that it is called with: what a struct's visitor wants (see VisitedOptions). A choice
  /// was saved by its name.
  auto options() const {
    return [this](std::string_view name, auto& value, const auto&... description) {
      visited(name, value, description...);
    };
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
      refuse(error);
    }
  }

 private:
  template <class T>
  void visited(std::string_view name, T& value) const {
    option(name, value);
  }
  template <class T, class... Limits>
  void visited(std::string_view name, T& value, std::string_view /*help*/, const Limits&...) const {
    option(name, value);
  }
  template <class Enum, std::size_t N>
  void visited(std::string_view name, Enum& value, std::string_view /*help*/,
               const OptionChoices<Enum, N>& choices) const {
    const std::string text = option_text(name);
    const Enum* const found = choices.find(text);
    if (found == nullptr) throw bad_option(name, text, "one of the names that it may have");
    value = *found;
  }
  template <VisitedOptions Options>
  void visited(std::string_view /*name*/, Options& inner) const {
    Options::visit(inner, options());
  }

  struct Shared;
  struct Bytes {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };

  /// `outer` is the kind that errors speak of until its own is known.
  IndexReader(std::shared_ptr<const Shared> shared, std::string prefix, std::size_t depth, std::string outer);

  const std::string* find(const std::string& key) const;

  template <class T>
  void check_numbers(std::string_view name, std::span<const T> values) const;
  template <class T>
  void parse_number(std::string_view name, T& value) const;

  bool flag(std::string_view name) const;
  void number(std::string_view name, double& value) const;
  void number(std::string_view name, float& value) const;
  void number(std::string_view name, std::int64_t& value) const;
  void number(std::string_view name, std::uint64_t& value) const;

  const TensorView* find_tensor(std::string_view name) const;
  Bytes aligned_bytes(std::string_view name, Shape shape, DataType type) const;
  std::string option_text(std::string_view name) const;
  Error bad_option(std::string_view name, std::string_view text, const char* expected) const;
  [[noreturn]] void refuse(const Error& error) const;
  Error not_rising(std::string_view name, std::size_t begin, std::size_t end) const;
  Error unusable(std::string_view what) const;

  std::shared_ptr<const Shared> shared_;
  std::string prefix_;
  std::size_t depth_;
  std::string kind_;
};

/// What Backend::load() makes of an index, with the usual effort that the index holds. Every loader calls it.
template <class Backend>
std::unique_ptr<Backend> load_usual(const IndexReader& in) {
  std::unique_ptr<Backend> loaded = Backend::load(in);
  loaded->set_usual_effort(in.effort());
  return loaded;
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/index/index_reader-inl.hpp"
#endif
