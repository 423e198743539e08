// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/l2s/row_codes.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What BestRow works in.
struct BestRowScratch {
  ScratchBuffer ids;  ///< of the rows that may be the best
  ScratchBuffer products;
};

/// The row with the largest product of some, without reading most of their weights: an 8-bit copy bounds
/// every product (RowCodes), and the rows that may be the best are multiplied in full. The answer is the one
/// that kernels::argmax gives.
class BestRow {
 public:
  /// A row, and the bytes that finding it has read.
  struct Found {
    std::size_t row;
    std::size_t bytes_read;
  };

  BestRow() = default;

  /// At least one row, without biases. Cost: count·d. Keeps count·(d + 8) bytes beside them.
  explicit BestRow(StoredRows rows);

  /// The row with the largest product with h [d], the lowest of equals. Cost: reads count·(d + 8) bytes, and
  /// d floats a row that may be the best.
  Found find(const float* h, Workspace& workspace) const;

  std::size_t count() const { return rows_.count(); }
  kernels::Rows rows() const { return rows_.rows(); }
  /// Bytes kept, those of the rows included.
  std::size_t bytes() const { return rows().bytes(count()) + codes_.blocks().bytes(); }

 private:
  /// Fewer rows are multiplied sooner than bounded.
  static constexpr std::size_t kFewest = 32;

  StoredRows rows_;
  RowCodes codes_;  ///< empty where rows are not bounded
};

inline BestRow::BestRow(StoredRows rows) : rows_(std::move(rows)) {
  const std::size_t dim = rows_.dim();
  if (rows_.count() < kFewest || dim > RowCodes::kMostDim) return;
  RowCoder coder(rows_.count(), dim);
  for (std::size_t r = 0; r < rows_.count(); ++r) {
    coder.put(r, 0.0F, {rows_.weights().data() + r * dim, dim});
  }
  codes_ = std::move(coder).finish();
}

inline BestRow::Found BestRow::find(const float* h, Workspace& workspace) const {
  std::optional<RowBounds> bounds;
  if (!codes_.empty()) bounds = codes_.bound(codes_.blocks(), h, rows_.dim(), workspace);
  if (!bounds) return {kernels::argmax(rows(), h), rows().bytes(count())};

  BestRowScratch& scratch = workspace.scratch<BestRowScratch>();
  auto* const ids = scratch.ids.get<TokenId>(count() + kernels::kSlack);
  const float highest = kernels::max(bounds->low, count());
  const std::size_t left = kernels::reaching(bounds->estimates, bounds->radii, count(), highest, ids);
  const std::size_t bytes = codes_.blocks().bytes();
  if (left == 1) return {static_cast<std::size_t>(ids[0]), bytes};
  auto* const products = scratch.products.get<float>(left);
  kernels::scan_gathered(rows(), ids, left, h, products);
  const auto best = static_cast<std::size_t>(std::max_element(products, products + left) - products);
  return {static_cast<std::size_t>(ids[best]), bytes + rows().bytes(left)};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
