// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

// What the steps of a query cost, in bytes of prefixes that are scanned: a scan streams, gathered rows do
// not.
//
// `topksoftmax-kernels-bench --benchmark_filter=certified/` measures them; the unit is (prefix/width:128 −
// prefix/width:32)/96 of its figures. On a core of an AMD EPYC (family 25, AVX-512 with VNNI, L2 1 MiB, L3 32
// MiB), with other work beside it, that was 0.014 ns in the quietest of four runs and up to 0.019 in others.
// In units of 0.014 ns all runs gave
//
//                    here    measured
//   kRowCost           24    20 to 24
//   kBoxRows            2    1.4 to 1.9 (rows)
//   kOpenedRows       1.5    1.2 to 1.5 (rows)
//   kTailCost         400    400 to 450
//   kTailLineCost      96    160 to 240 (10,240 rows), 170 to 700 (32,768)
//   kScoredByteCost     3    1.4 to 4.1 in the third cache, 4 to 8 beyond it
//
// So tails of several lines, and rows to score that lie in memory, are dearer on that machine than they are
// taken for. Which options are chosen, and with them index files, depends on these values.

/// What a row takes whatever its prefix: its bias, scale and radius, the bound, and its part in log Z.
inline constexpr double kRowCost = 24.0;
/// What a row takes more where it has coordinates in codes, and each of these. (Measured on the same machine:
/// 0.25 ns, and in int4 0.0086 ns from the second cache, 0.007 from memory.)
inline constexpr double kCodeRowCost = 16.0;
inline constexpr double kInt4Cost = 0.6;
inline constexpr double kInt2Cost = 0.3;
/// What the bound of a box takes, in rows with a prefix as long.
inline constexpr double kBoxRows = 2.0;
/// What a row of a box that is opened takes, of what it does where all are read in their order.
inline constexpr double kOpenedRows = 1.5;
/// A row that is looked at by a tail of one cache line.
inline constexpr double kTailCost = 400.0;
/// Each more line of it.
inline constexpr double kTailLineCost = 96.0;
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
