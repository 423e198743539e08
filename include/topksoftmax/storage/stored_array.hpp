// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A read-only array that shares the ownership of its memory, whatever that is: a vector, a matrix, a mapped
/// file. Copies are handles on the same values, which never move.
template <class T>
class StoredArray {
 public:
  StoredArray() = default;

  /// Values that live as long as `owner` does.
  StoredArray(std::span<const T> values, std::shared_ptr<const void> owner)
      : values_(values), owner_(std::move(owner)) {}

  /// Keeps a container of contiguous values: a vector, a matrix.
  template <class Container>
  static StoredArray own(Container values) {
    const auto kept = std::make_shared<const Container>(std::move(values));
    return {std::span<const T>(kept->data(), static_cast<std::size_t>(kept->size())), kept};
  }

  /// A copy that begins on a cache line, for rows that are scanned: vectors that cross one read slower.
  static StoredArray copy(std::span<const T> values) {
    const std::shared_ptr<std::byte> storage = detail::aligned_zeros(values.size_bytes());
    T* const copied = reinterpret_cast<T*>(storage.get());
    std::copy(values.begin(), values.end(), copied);
    return {std::span<const T>(copied, values.size()), storage};
  }

  /// Values that outlive the array.
  static StoredArray borrow(std::span<const T> values) { return {values, nullptr}; }

  /// The first value.
  const T* data() const { return values_.data(); }
  /// Number of values.
  std::size_t size() const { return values_.size(); }
  /// Value i, i < size().
  const T& operator[](std::size_t i) const { return values_[i]; }
  /// For loops over the values.
  auto begin() const { return values_.begin(); }
  /// For loops over the values.
  auto end() const { return values_.end(); }
  /// All values.
  std::span<const T> span() const { return values_; }
  /// What keeps them alive; null where they are borrowed.
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::span<const T> values_;
  std::shared_ptr<const void> owner_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
