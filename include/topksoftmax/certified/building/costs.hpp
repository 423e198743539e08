// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

// What the steps of a query cost, in bytes of prefixes that are scanned: a scan streams, gathered rows do
// not.
//
// `topksoftmax-kernels-bench --benchmark_filter=certified/` measures them; the unit is (prefix/width:128 −
// prefix/width:32)/96 of its figures, 0.011 to 0.014 ns on cores of two AMD EPYC with nothing beside it
// (AVX-512 with VNNI). In units of that
//
//                         here    family 25     family 26
//   kRowCost                24    33            23
//   kBoxRows                 2    1.4 to 1.7    1.1 to 1.6 (rows)
//   kOpenedRows            1.5    1.0 to 1.3    0.9 to 1.5 (rows)
//   kTailCost              300    420           390
//   kCachedTailLineCost     64    98            115
//   kTailLineCost          176    160 to 250    200
//   kScoredByteCost          3    2 to 7        1.5 to 5
//
// With those of family 25 in their place a translator's layer was given boxes, which took a sixth longer, and
// two others took as long; with tails and scoring alone dearer, six layers took as long, or up to 2 % longer.
// Which options are chosen, and with them index files, depends on these values.

/// What a row takes whatever its prefix: its bias, scale and radius, the bound, and its part in log Z.
inline constexpr double kRowCost = 24.0;
/// What a row takes more where it has coordinates in codes, and each of these. (Measured in queries on
/// the one of family 25: one in int4 0.22 to 0.32 from the third cache and 0.55 from memory, where one in
/// int8 takes 1.5. One of two bits takes as long out of the second cache, and half of it out of memory: with
/// 0.3 in its place a layer of 262,144 × 256 was given 160 in int4 alone, and took an eighth longer than with
/// 96 and 128 in two bits.)
inline constexpr double kCodeRowCost = 16.0;
inline constexpr double kInt4Cost = 0.4;
inline constexpr double kInt2Cost = 0.24;
/// What the bound of a box takes, in rows with a prefix as long.
inline constexpr double kBoxRows = 2.0;
/// What a row of a box that is opened takes, of what it does where all are read in their order.
inline constexpr double kOpenedRows = 1.5;
/// A row that is looked at by a tail of one cache line.
inline constexpr double kTailCost = 300.0;
/// Each more line of it: of tails that a third cache holds, all together, and of others.
inline constexpr double kCachedTailLineCost = 64.0;
inline constexpr double kTailLineCost = 176.0;
/// A row that is looked at by its tail, of as many lines as those of all rows.
inline double tail_cost(std::size_t vocab, std::size_t lines) {
  constexpr std::size_t line = kernels::PrefixTails::kLine;
  if (lines <= 1) return kTailCost;
  const bool cached = lines <= kernels::kThirdCache / line / vocab;
  return kTailCost + (cached ? kCachedTailLineCost : kTailLineCost) * static_cast<double>(lines - 1);
}
/// A byte of a row that is scored.
inline constexpr double kScoredByteCost = 3.0;
/// Q and R: a float16 for each dimension and coordinate and R in float32; where there are as many coordinates
/// as dimensions, a byte.
inline double transform_cost(std::size_t dim, std::size_t width) {
  const auto d = static_cast<double>(dim);
  const auto M = static_cast<double>(width);
  return width < dim ? (2.0 * d + 4.0 * M) * M : d * d;
}
/// Rows that are scored, of those that their prefixes let pass: a guess where tails are one line.
inline constexpr double kScoredShare = 0.25;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
