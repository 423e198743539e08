// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "screeners/prefix_store.hpp"
#include "topksoftmax/kernels/prefix_boxes.hpp"

namespace topksoftmax {

class IndexReader;
class IndexWriter;

/// Memory of PrefixBoxes.
class PrefixBoxStore {
 public:
  PrefixBoxStore() = default;
  /// Around the blocks of `rows`, as they are stored.
  explicit PrefixBoxStore(const PrefixStore& rows);

  /// Reads what save() has written for so many boxes of this width. Throws Error for scales and radii that
  /// are NaN or below 0.
  PrefixBoxStore(const IndexReader& in, std::size_t count, std::size_t width);
  /// The tensors "boxes.centres" and "boxes.spreads", as PrefixStore saves them.
  void save(IndexWriter& out) const;

  kernels::PrefixBoxes boxes() const { return {centres_.blocks(), spreads_.blocks()}; }

 private:
  PrefixStore centres_;
  PrefixStore spreads_;
};

}  // namespace topksoftmax
