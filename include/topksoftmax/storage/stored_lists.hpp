// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/storage/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Lists of values that lie one behind the other: list i is values[starts[i] … starts[i + 1]). Copies are
/// handles on the same values, as those of StoredArray are.
template <class T, class Start = std::uint64_t>
class StoredLists {
 public:
  /// No list.
  StoredLists() = default;

  /// Starts never decrease; there is one more of them than there are lists, and the last one is at most
  /// values.size().
  StoredLists(StoredArray<Start> starts, StoredArray<T> values)
      : starts_(std::move(starts)), values_(std::move(values)) {}

  /// Copies lists one behind the other.
  static StoredLists copy(std::span<const std::vector<T>> lists) {
    std::vector<Start> starts = {0};
    std::vector<T> values;
    starts.reserve(lists.size() + 1);
    for (const std::vector<T>& list : lists)
      starts.push_back(static_cast<Start>(starts.back() + list.size()));
    values.reserve(static_cast<std::size_t>(starts.back()));
    for (const std::vector<T>& list : lists) values.insert(values.end(), list.begin(), list.end());
    return {StoredArray<Start>::own(std::move(starts)), StoredArray<T>::own(std::move(values))};
  }

  /// Number of lists.
  std::size_t size() const { return starts_.size() == 0 ? 0 : starts_.size() - 1; }
  /// List i, i < size().
  std::span<const T> operator[](std::size_t i) const {
    const auto start = static_cast<std::size_t>(starts_[i]);
    return values_.span().subspan(start, static_cast<std::size_t>(starts_[i + 1]) - start);
  }
  /// Where lists begin, and where the last one ends: [size() + 1], or none.
  const StoredArray<Start>& starts() const { return starts_; }
  /// The values of all lists.
  const StoredArray<T>& values() const { return values_; }
  /// What all of it takes.
  std::size_t bytes() const { return starts_.span().size_bytes() + values_.span().size_bytes(); }

 private:
  StoredArray<Start> starts_;
  StoredArray<T> values_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
