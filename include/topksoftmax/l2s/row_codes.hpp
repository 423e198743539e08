// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/context_rounding.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/prefix_writer.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What RowCodes works in.
struct RowCodesScratch {
  ScratchBuffer shorts;  ///< the context's 15-bit integers, filled up with zeros
  ScratchBuffer estimates;
  ScratchBuffer radii;
  ScratchBuffer low;
};

/// Bounds of what rows have with a context, of whole blocks: product + bias is within estimate ± radius.
struct RowBounds {
  float* estimates;
  float* radii;
  float* low;  ///< estimate − radius
};

/// Rows in 8 bits, which bound their products with any context.
///
/// Rows v and contexts h are v̂ and ĥ after rounding. v·h − v̂·ĥ = (v − v̂)·h + v̂·(h − ĥ), and each of ĥ's
/// coordinates is wrong by a share of the largest of h: so both are at most a number of the row times ‖h‖, as
/// is the rounding of the product that kernels compute.
class RowCodes {
 public:
  /// Rows are no wider than this.
  static constexpr std::size_t kMostDim = kernels::kMaxWidth;

  RowCodes() = default;
  /// What a RowCoder has written, or what was saved of it.
  RowCodes(PrefixStore store, double longest) : store_(std::move(store)), longest_(longest) {}

  bool empty() const { return blocks().rows == 0; }
  const kernels::PrefixBlocks& blocks() const { return store_.blocks(); }
  const PrefixStore& store() const { return store_; }
  /// The length of the longest row.
  double longest() const { return longest_; }

  /// The bounds of some of the blocks for h [dim], in the workspace until it is used again. Nothing where h
  /// is too short or too long for them.
  std::optional<RowBounds> bound(const kernels::PrefixBlocks& some, const float* h, std::size_t dim,
                                 Workspace& workspace) const;

 private:
  /// Contexts so long, or lengths so large as products of both, leave float32 neither squares that vanish nor
  /// sums that overflow.
  static constexpr double kShortest = 1e-10;
  static constexpr double kLargest = 1e37;

  PrefixStore store_;
  double longest_ = 0.0;
};

/// Writes RowCodes.
class RowCoder {
 public:
  /// Of rows [count×dim], dim ≤ RowCodes::kMostDim.
  RowCoder(std::size_t count, std::size_t dim);

  /// Writes a row [dim] and its bias.
  void put(std::size_t at, float bias, std::span<const float> row);

  /// Hands over what was written; nothing more can be.
  RowCodes finish() && { return {std::move(writer_).finish(), longest_}; }

 private:
  PrefixWriter writer_;
  double lost_of_context_;  ///< ‖h − ĥ‖ / ‖h‖ at the most
  double longest_ = 0.0;
  std::vector<double> x_;
  std::vector<std::int8_t> q_;
};

inline RowCoder::RowCoder(std::size_t count, std::size_t dim)
    : writer_(count, kernels::PrefixBlocks::width_for(dim)),
      lost_of_context_(rounded_to_shorts(1.0F) * std::sqrt(static_cast<double>(dim)) /
                       static_cast<double>(kernels::PrefixContext::largest(dim))),
      x_(kernels::PrefixBlocks::width_for(dim), 0.0),
      q_(x_.size()) {}

inline void RowCoder::put(std::size_t at, float bias, std::span<const float> row) {
  std::copy(row.begin(), row.end(), x_.begin());
  const double scale = writer_.put(at, bias, x_, q_.data());
  double lost = 0.0;
  double rounded = 0.0;
  double whole = 0.0;
  for (std::size_t j = 0; j < row.size(); ++j) {
    const double kept = scale * q_[j];
    lost += (x_[j] - kept) * (x_[j] - kept);
    rounded += kept * kept;
    whole += x_[j] * x_[j];
  }
  const double length = std::sqrt(whole);
  longest_ = std::max(longest_, length);
  // Rows of blocks and of int8 are rounded when they are made floats, and once more by their scale.
  writer_.put_radius(
      at, (std::sqrt(lost) + std::sqrt(rounded) * lost_of_context_ + length * roundings(row.size() + 2)) *
              kOutward);
}

inline std::optional<RowBounds> RowCodes::bound(const kernels::PrefixBlocks& some, const float* h,
                                                std::size_t dim, Workspace& workspace) const {
  const double length = std::sqrt(static_cast<double>(kernels::squared_length(h, dim)));
  if (!(length >= kShortest && length * longest_ <= kLargest)) return std::nullopt;
  RowCodesScratch& scratch = workspace.scratch<RowCodesScratch>();
  auto* const n = scratch.shorts.get<std::int16_t>(some.width);
  const float step = round_to_shorts(h, dim, n);
  std::fill(n + dim, n + some.width, std::int16_t{0});
  // Room for the rounding of the length itself, and of estimate ± radius.
  const float radius = up(length * (1.0 + roundings(dim + 3)) * (1.0 + 0x1p-18));
  const std::size_t room = some.blocks() * kernels::PrefixBlocks::kRows;
  const RowBounds bounds = {scratch.estimates.get<float>(room), scratch.radii.get<float>(room),
                            scratch.low.get<float>(room)};
  kernels::prefix_bounds(some, {.n = n, .scale = step, .radius = radius}, bounds.estimates, bounds.radii);
  for (std::size_t r = 0; r < room; ++r) bounds.low[r] = bounds.estimates[r] - bounds.radii[r];
  return bounds;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
