// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
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
#include "topksoftmax/index/index_key.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"
#include "topksoftmax/storage/cache_line.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE std::string build_it_again(std::string_view kind) {
  return "; build the index again (" + in_quotes(kind) + ") and save it";
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

struct IndexReader::Shared {
  IndexContents contents;
  SoftmaxLayer layer;
  const BackendLoader& loader;
};

TOPKSOFTMAX_INLINE IndexReader::IndexReader(IndexContents contents, SoftmaxLayer layer,
                                            const BackendLoader& loader)
    : IndexReader(std::make_shared<const Shared>(Shared{std::move(contents), std::move(layer), loader}), "",
                  0, "") {}

TOPKSOFTMAX_INLINE IndexReader::IndexReader(std::shared_ptr<const Shared> shared, std::string prefix,
                                            std::size_t depth, std::string outer)
    : shared_(std::move(shared)), prefix_(std::move(prefix)), depth_(depth), kind_(std::move(outer)) {
  const std::string* const own = find(index_key::kind);
  if (own == nullptr) throw unusable("its metadata has no " + prefix_ + index_key::kind);
  kind_.assign(*own);
}

TOPKSOFTMAX_INLINE const SoftmaxLayer& IndexReader::layer() const {
  return shared_->layer;
}

TOPKSOFTMAX_INLINE const std::string& IndexReader::source() const {
  return shared_->contents.source;
}

TOPKSOFTMAX_INLINE IndexReader IndexReader::part(std::string_view name) const {
  if (depth_ == index_key::most_parts) {
    throw unusable("more than " + std::to_string(index_key::most_parts) + " indexes are within each other");
  }
  return {shared_, prefix_ + std::string(name) + ".", depth_ + 1, kind_};
}

TOPKSOFTMAX_INLINE std::unique_ptr<TopKSoftmax> IndexReader::load_part(std::string_view name) const {
  return shared_->loader.load(part(name));
}

TOPKSOFTMAX_INLINE const std::string* IndexReader::find(const std::string& key) const {
  const TensorMetadata& all = shared_->contents.metadata;
  const auto found = all.find(prefix_ + key);
  return found == all.end() ? nullptr : &found->second;
}

TOPKSOFTMAX_INLINE std::size_t IndexReader::effort() const {
  const std::string* const text = find(index_key::effort);
  if (text == nullptr) return 0;
  if (const auto effort = detail::number_of<std::size_t>(*text)) return *effort;
  throw unusable("its metadata " + prefix_ + index_key::effort + " is " + detail::in_quotes(*text) +
                 ", expected a number");
}

TOPKSOFTMAX_INLINE bool IndexReader::has_tensor(std::string_view name) const {
  return find_tensor(name) != nullptr;
}

TOPKSOFTMAX_INLINE bool IndexReader::has_option(std::string_view name) const {
  return find(index_key::options + std::string(name)) != nullptr;
}

TOPKSOFTMAX_INLINE const TensorView* IndexReader::find_tensor(std::string_view name) const {
  const std::string full = prefix_ + std::string(name);
  const std::vector<TensorView>& tensors = shared_->contents.tensors;
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&full](const TensorView& tensor) { return tensor.name == full; });
  return found == tensors.end() ? nullptr : &*found;
}

TOPKSOFTMAX_INLINE IndexReader::Bytes IndexReader::aligned_bytes(std::string_view name, Shape shape,
                                                                 DataType type) const {
  const TensorView* const found = find_tensor(name);
  if (found == nullptr) throw damaged(name, "is not in the file");
  const TensorView& view = *found;
  const bool fits =
      std::equal(view.shape.begin(), view.shape.end(), shape.begin(), shape.end(),
                 [](std::size_t size, std::size_t wanted) { return wanted == any || size == wanted; });
  if (view.type != type || !fits) {
    throw damaged(name, "is " + std::string(data_type_name(view.type)) + " " + shape_text(view.shape) +
                            ", expected " + std::string(data_type_name(type)) + " " + shape_text(shape));
  }
  if (reinterpret_cast<std::uintptr_t>(view.bytes.data()) % detail::kCacheLine == 0)
    return {view.bytes, shared_->contents.storage};
  const std::shared_ptr<std::byte> copy = detail::aligned_zeros(view.bytes.size());
  std::copy(view.bytes.begin(), view.bytes.end(), copy.get());
  return {{copy.get(), view.bytes.size()}, copy};
}

template <class T>
void IndexReader::check_numbers(std::string_view name, std::span<const T> values) const {
  int found = 0;  // without a branch, so that compilers turn it into vectors
  for (const T value : values) found |= std::isnan(value) ? 1 : 0;
  if (found != 0) throw damaged(name, "has a value that is NaN");
}

TOPKSOFTMAX_INLINE StoredArray<float> IndexReader::floats(std::string_view name, Shape shape) const {
  StoredArray<float> values = array<float>(name, shape);
  check_numbers(name, values.span());
  return values;
}

TOPKSOFTMAX_INLINE StoredArray<double> IndexReader::doubles(std::string_view name, Shape shape) const {
  StoredArray<double> values = array<double>(name, shape);
  check_numbers(name, values.span());
  return values;
}

TOPKSOFTMAX_INLINE StoredArray<TokenId> IndexReader::tokens(std::string_view name, Shape shape) const {
  StoredArray<TokenId> ids = array<TokenId>(name, shape);
  std::uint32_t highest = 0;  // of negative ones it is 2³¹ or more
  for (const TokenId id : ids) highest = std::max(highest, static_cast<std::uint32_t>(id));
  if (ids.size() > 0 && highest >= vocab()) {
    throw damaged(name, "has the token " + std::to_string(static_cast<TokenId>(highest)) +
                            ", tokens are from 0 to " + std::to_string(vocab() - 1));
  }
  return ids;
}

TOPKSOFTMAX_INLINE StoredArray<TokenId> IndexReader::distinct_tokens(std::string_view name,
                                                                     Shape shape) const {
  StoredArray<TokenId> ids = tokens(name, shape);
  std::vector<bool> met(vocab(), false);
  for (const TokenId id : ids) {
    const auto token = static_cast<std::size_t>(id);
    if (met[token]) throw damaged(name, "has the token " + std::to_string(id) + " twice");
    met[token] = true;
  }
  return ids;
}

TOPKSOFTMAX_INLINE StoredArray<std::uint64_t> IndexReader::offsets(std::string_view name, Shape shape,
                                                                   std::size_t end, std::size_t begin) const {
  StoredArray<std::uint64_t> offsets = array<std::uint64_t>(name, shape);
  check_offsets(name, offsets.span(), end, begin);
  return offsets;
}

TOPKSOFTMAX_INLINE std::string IndexReader::option_text(std::string_view name) const {
  const std::string key = index_key::options + std::string(name);
  const std::string* const value = find(key);
  if (value == nullptr) throw unusable("its metadata has no " + prefix_ + key);
  return *value;
}

TOPKSOFTMAX_INLINE bool IndexReader::flag(std::string_view name) const {
  const std::string text = option_text(name);
  if (text != "0" && text != "1") throw bad_option(name, text, "0 or 1");
  return text == "1";
}

template <class T>
void IndexReader::parse_number(std::string_view name, T& value) const {
  const std::string text = option_text(name);
  const std::optional<T> number = detail::number_of<T>(text);
  if (!number) throw bad_option(name, text, "a number");
  value = *number;
}

TOPKSOFTMAX_INLINE void IndexReader::number(std::string_view name, double& value) const {
  parse_number(name, value);
}

TOPKSOFTMAX_INLINE void IndexReader::number(std::string_view name, float& value) const {
  parse_number(name, value);
}

TOPKSOFTMAX_INLINE void IndexReader::number(std::string_view name, std::int64_t& value) const {
  parse_number(name, value);
}

TOPKSOFTMAX_INLINE void IndexReader::number(std::string_view name, std::uint64_t& value) const {
  parse_number(name, value);
}

TOPKSOFTMAX_INLINE Error IndexReader::bad_option(std::string_view name, std::string_view text,
                                                 const char* expected) const {
  return unusable("its metadata " + prefix_ + index_key::options + std::string(name) + " is " +
                  detail::in_quotes(text) + ", expected " + expected);
}

TOPKSOFTMAX_INLINE Error IndexReader::damaged(std::string_view tensor, const std::string& what) const {
  return Error(source() + ": tensor " + detail::in_quotes(prefix_ + std::string(tensor)) + ": " + what +
               "; it is damaged" + detail::build_it_again(kind_));
}

TOPKSOFTMAX_INLINE void IndexReader::refuse(const Error& error) const {
  throw unusable(error.what());
}

TOPKSOFTMAX_INLINE Error IndexReader::not_rising(std::string_view name, std::size_t begin,
                                                 std::size_t end) const {
  return damaged(name, "does not rise from " + std::to_string(begin) + " to " + std::to_string(end));
}

TOPKSOFTMAX_INLINE Error IndexReader::unusable(std::string_view what) const {
  return Error(source() + ": " + std::string(what) + "; it is damaged" + detail::build_it_again(kind_));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
