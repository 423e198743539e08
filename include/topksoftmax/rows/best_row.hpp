// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/prefix_writer.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What BestRow works in.
struct BestRowScratch {
  ScratchBuffer shorts;  ///< the context's 15-bit integers, filled up with zeros
  ScratchBuffer estimates;
  ScratchBuffer radii;
  ScratchBuffer low;  ///< lower bounds
  ScratchBuffer ids;  ///< of the rows that may be the best
  ScratchBuffer products;
};

/// The row with the largest product of some, without reading most of their weights: an 8-bit copy bounds
/// every product, and the rows that may be the best are multiplied in full. The answer is the one that
/// kernels::argmax gives.
///
/// Rows v and contexts h are v̂ and ĥ after rounding. v·h − v̂·ĥ = (v − v̂)·h + v̂·(h − ĥ), and each of ĥ's
/// coordinates is wrong by a share of the largest of h: so both are at most a number of the row times ‖h‖, as
/// is the rounding of the product that argmax compares.
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
  /// Contexts so long, or lengths so large as products of both, leave float32 neither squares that vanish nor
  /// sums that overflow.
  static constexpr double kShortest = 1e-10;
  static constexpr double kLargest = 1e37;

  void bound_rows();

  StoredRows rows_;
  PrefixStore codes_;     ///< no rows where they are not bounded
  double longest_ = 0.0;  ///< ‖v‖ of the longest
};

inline BestRow::BestRow(StoredRows rows) : rows_(std::move(rows)) {
  if (rows_.count() >= kFewest && rows_.dim() <= kernels::PrefixBlocks::kMaxWidth) bound_rows();
}

inline void BestRow::bound_rows() {
  const std::size_t dim = rows_.dim();
  const std::size_t width = kernels::PrefixBlocks::width_for(dim);
  const auto most = static_cast<double>(kernels::PrefixContext::largest(dim));
  const double lost_of_context = rounded_to_shorts(1.0F) * std::sqrt(static_cast<double>(dim)) / most;
  PrefixWriter writer(rows_.count(), width);
  std::vector<double> x(width, 0.0);
  std::vector<std::int8_t> q(width);
  for (std::size_t r = 0; r < rows_.count(); ++r) {
    std::copy_n(rows_.weights().data() + r * dim, dim, x.begin());
    const double scale = writer.put(r, 0.0F, x, q.data());
    double lost = 0.0;
    double rounded = 0.0;
    double whole = 0.0;
    for (std::size_t j = 0; j < dim; ++j) {
      const double kept = scale * q[j];
      lost += (x[j] - kept) * (x[j] - kept);
      rounded += kept * kept;
      whole += x[j] * x[j];
    }
    const double length = std::sqrt(whole);
    longest_ = std::max(longest_, length);
    writer.put_radius(
        r, (std::sqrt(lost) + std::sqrt(rounded) * lost_of_context + length * roundings(dim)) * kOutward);
  }
  codes_ = std::move(writer).finish();
}

inline BestRow::Found BestRow::find(const float* h, Workspace& workspace) const {
  const kernels::PrefixBlocks& codes = codes_.blocks();
  const std::size_t dim = rows_.dim();
  const double length = std::sqrt(static_cast<double>(kernels::squared_length(h, dim)));
  if (codes.rows == 0 || !(length >= kShortest && length * longest_ <= kLargest)) {
    return {kernels::argmax(rows(), h), rows().bytes(count())};
  }

  BestRowScratch& scratch = workspace.scratch<BestRowScratch>();
  auto* const n = scratch.shorts.get<std::int16_t>(codes.width);
  const float step = round_to_shorts(h, dim, n);
  std::fill(n + dim, n + codes.width, std::int16_t{0});
  // Room for the rounding of the length itself, and of estimate ± radius.
  const float radius = up(length * (1.0 + roundings(dim + 3)) * (1.0 + 0x1p-18));
  const std::size_t room = codes.blocks() * kernels::PrefixBlocks::kRows;
  auto* const estimates = scratch.estimates.get<float>(room);
  auto* const radii = scratch.radii.get<float>(room);
  kernels::prefix_bounds(codes, {.n = n, .scale = step, .radius = radius}, estimates, radii);

  auto* const low = scratch.low.get<float>(room);
  for (std::size_t r = 0; r < room; ++r) low[r] = estimates[r] - radii[r];
  auto* const ids = scratch.ids.get<TokenId>(count() + kernels::kSlack);
  const std::size_t left = kernels::reaching(estimates, radii, count(), kernels::max(low, count()), ids);
  if (left == 1) return {static_cast<std::size_t>(ids[0]), codes.bytes()};
  auto* const products = scratch.products.get<float>(left);
  kernels::scan_gathered(rows(), ids, left, h, products);
  const auto best = static_cast<std::size_t>(std::max_element(products, products + left) - products);
  return {static_cast<std::size_t>(ids[best]), codes.bytes() + rows().bytes(left)};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
