// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/prefix_boxes.hpp"
#include "topksoftmax/rows/prefix_store.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Memory of kernels::PrefixBoxes.
class BoxStore {
 public:
  BoxStore() = default;
  BoxStore(PrefixStore centres, PrefixStore spreads)
      : centres_(std::move(centres)), spreads_(std::move(spreads)) {}

  /// Reads what save() has written for so many boxes of this width. Throws Error for scales and radii that
  /// are NaN or below 0.
  BoxStore(const IndexReader& in, std::size_t count, std::size_t width)
      : centres_(in, kCentres, count, width), spreads_(in, kSpreads, count, width) {}

  /// The tensors "boxes.centres" and "boxes.spreads", as PrefixStore saves them.
  void save(IndexWriter& out) const {
    centres_.save(out, kCentres);
    spreads_.save(out, kSpreads);
  }

  kernels::PrefixBoxes boxes() const { return {centres_.blocks(), spreads_.blocks()}; }

 private:
  static constexpr const char* kCentres = "boxes.centres";
  static constexpr const char* kSpreads = "boxes.spreads";

  PrefixStore centres_;
  PrefixStore spreads_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
