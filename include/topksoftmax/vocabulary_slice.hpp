// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Rows first, …, last − 1 of a layer of `vocab` rows: what one rank has of it. May be none.
struct VocabularySlice {
  /// The first row of the slice.
  std::size_t first = 0;
  /// The row after the last one.
  std::size_t last = 0;
  /// Rows of the whole layer.
  std::size_t vocab = 0;

  /// Number of rows.
  std::size_t size() const { return last - first; }
  /// Whether it has no rows.
  bool empty() const { return first == last; }
  /// Whether a row of the layer is in it.
  bool holds(std::size_t row) const { return first <= row && row < last; }

  /// Whether both are the same rows of layers of the same size.
  friend bool operator==(const VocabularySlice&, const VocabularySlice&) = default;
};

/// The slice of rank `rank` of `ranks` where none has more than one row more than any other; where there are
/// more ranks than rows, some have none.
inline VocabularySlice even_slice(std::size_t vocab, std::size_t rank, std::size_t ranks) {
  return {rank * vocab / ranks, (rank + 1) * vocab / ranks, vocab};
}

/// The rows of a slice, which is not empty, as a layer that shares the weights of the whole one. Throws Error
/// for a slice of another vocabulary, or out of range. Cost: one read of these rows to validate them.
inline SoftmaxLayer slice_of(const SoftmaxLayer& whole, const VocabularySlice& slice) {
  if (slice.vocab != whole.vocab() || slice.first >= slice.last || slice.last > whole.vocab()) {
    throw Error("slice: rows " + std::to_string(slice.first) + " to " + std::to_string(slice.last) + " of " +
                std::to_string(slice.vocab) + " are not a slice of a layer of " +
                std::to_string(whole.vocab()) + " rows");
  }
  kernels::Rows rows = whole.rows();
  rows.data = rows.row(slice.first);
  rows.count = slice.size();
  if (rows.scales != nullptr) rows.scales += slice.first;
  if (rows.bias != nullptr) rows.bias += slice.first;
  const auto biases = static_cast<std::ptrdiff_t>(whole.has_bias() ? slice.size() : 0);
  return SoftmaxLayer::own(rows, biases, std::make_shared<const SoftmaxLayer>(whole));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
