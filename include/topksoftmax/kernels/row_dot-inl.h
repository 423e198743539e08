// SPDX-License-Identifier: Apache-2.0
//
// The dot products of rows with contexts, in the one summation order that kernels/kernels.hpp promises.
// Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_ROW_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_ROW_DOT_INL_H_
#undef TOPKSOFTMAX_KERNELS_ROW_DOT_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_ROW_DOT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/prefetch.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/kernels/stored-inl.h"
#include "topksoftmax/storage/cache_line.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Rows (or row–context pairs) whose dot products are computed together: enough chains of multiply-adds to
/// hide their latency, few enough pointers for the registers.
constexpr std::size_t kChains = 8;
/// Dot products that one call of a tile yields.
constexpr std::size_t kTile = 16;

// Folding the lanes of kLanes accumulators into one vector of their sums. A sum's tree is the same in every
// position: lane i + lane i + N/2, then N/4 apart, …, neighbours last.

#if HWY_TARGET != HWY_SCALAR

// Each takes one shuffle and one or two blends: shuffles have one port to themselves on most processors, and
// folds are a good part of what a tile of a batch costs.

/// Halves of the whole vector: [a folded | b folded].
template <class V>
HWY_INLINE V FoldHalves(V a, V b) {
  const hn::DFromV<V> d;
  return hn::Add(hn::ConcatUpperLower(d, b, a), hn::ConcatLowerUpper(d, b, a));
}

/// Neighbouring blocks of four lanes: blocks [a, c, b, d] from a = [a a b b], b = [c c d d].
template <class V>
HWY_INLINE V FoldBlocks(V a, V b) {
  return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
}

/// Lanes two apart within each block: [a a b b].
template <class V>
HWY_INLINE V FoldPairs(V a, V b) {
  const hn::DFromV<V> d;
  const hn::Repartition<double, hn::DFromV<V>> d64;
  const auto wide_a = hn::BitCast(d64, a);
  const auto wide_b = hn::BitCast(d64, b);
  return hn::Add(hn::BitCast(d, hn::OddEven(wide_b, wide_a)),
                 hn::BitCast(d, hn::CombineShiftRightBytes<8>(d64, wide_b, wide_a)));
}

/// Neighbouring lanes: [a, c, b, d] from a = [a a b b], b = [c c d d].
template <class V>
HWY_INLINE V FoldNeighbours(V a, V b) {
  return hn::Add(hn::OddEven(b, a), hn::Shuffle2301(hn::OddEven(a, b)));
}

/// Four vectors whose blocks hold four partial sums each, to one with a sum a lane.
template <class V>
HWY_INLINE V FoldWithinBlocks(V v0, V v1, V v2, V v3) {
  return FoldNeighbours(FoldPairs(v0, v2), FoldPairs(v1, v3));
}

#endif

/// The sums of kLanes accumulators, in their order.
template <class V>
HWY_INLINE V Fold(const V* acc) {
#if HWY_TARGET == HWY_SCALAR
  return acc[0];
#else
  if constexpr (kLanes == 4) {
    return FoldWithinBlocks(acc[0], acc[1], acc[2], acc[3]);
  } else if constexpr (kLanes == 8) {
    return FoldWithinBlocks(FoldHalves(acc[0], acc[4]), FoldHalves(acc[1], acc[5]),
                            FoldHalves(acc[2], acc[6]), FoldHalves(acc[3], acc[7]));
  } else {  // 16
    return FoldWithinBlocks(FoldBlocks(FoldHalves(acc[0], acc[8]), FoldHalves(acc[4], acc[12])),
                            FoldBlocks(FoldHalves(acc[1], acc[9]), FoldHalves(acc[5], acc[13])),
                            FoldBlocks(FoldHalves(acc[2], acc[10]), FoldHalves(acc[6], acc[14])),
                            FoldBlocks(FoldHalves(acc[3], acc[11]), FoldHalves(acc[7], acc[15])));
  }
#endif
}

/// The sum of one accumulator, by the same tree.
HWY_INLINE float FoldOne(FloatVec acc) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(acc, FloatTag(), lanes);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/// Folds kTile accumulators into sums[kTile].
template <class V>
HWY_INLINE void FoldTile(const V* acc, float* HWY_RESTRICT sums) {
  TOPKSOFTMAX_UNROLL
  for (std::size_t i = 0; i < kTile; i += kLanes) hn::StoreU(Fold(acc + i), FloatTag(), sums + i);
}

// What is read next: its lines are asked for while rows are multiplied. Several rows are read side by side,
// which no processor takes for one stream.

constexpr std::size_t kLine = topksoftmax::detail::kCacheLine;

/// Bytes that rows in order are asked for ahead. A batch always does, for it multiplies for long between
/// reads. Out of the third cache of an AMD EPYC (Zen 4), with d from 64 to 1,024, batches of 2 to 8 took up
/// to 1.3 times as long without, where other programs used that cache too 2.3 times; out of the second cache
/// as long as with.
constexpr std::size_t kAhead = std::size_t{32} * 1024;

/// Bytes that these rows are asked for ahead when a single context reads them in order; 0: they are not.
/// Weights of two bytes and more come out of a third cache as fast as its processor can read them, and a
/// request takes the place of a read: on an AMD EPYC 69 GB/s with requests and 85 without, where memory gave
/// 29 and 24. Narrower ones gain hardly anything there, and take up to four times as long from memory.
HWY_INLINE std::size_t AheadOf(const Rows& rows) {
  const bool wide = rows.row_bytes() >= 2 * rows.dim;
  return wide && rows.bytes(rows.count) <= kThirdCache ? 0 : kAhead;
}

/// Asks for lines of rows in order, `ahead` bytes behind kRows of which bytes first … first + bytes − 1 each
/// are multiplied: one line after the other, for the second cache; for none where that is 0.
template <std::size_t kRows, class Lane>
HWY_INLINE void PrefetchInOrder(const Lane* row, std::size_t ahead, std::size_t first, std::size_t bytes) {
  if (ahead == 0) return;
  const auto* const begin = reinterpret_cast<const std::byte*>(row) + ahead + kRows * first;
  for (std::size_t at = 0; at < kRows * bytes; at += kLine) prefetch_second(begin + at);
}

/// Rows in order.
struct RowsInOrder {
  std::size_t ahead;

  HWY_INLINE RowsInOrder From(std::size_t /*r*/) const { return *this; }
  template <class Lane>
  HWY_INLINE void Prefetch(const Lane* const* rows, std::size_t first, std::size_t bytes) const {
    PrefetchInOrder<kChains>(rows[0], ahead, first, bytes);
  }
};

/// Rows that lie anywhere: row r of these is read after row r of those that are multiplied.
template <class Lane>
struct RowsNext {
  const Lane* const* rows;

  HWY_INLINE RowsNext From(std::size_t r) const { return {rows + r}; }

  HWY_INLINE void Prefetch(const Lane* const* /*multiplied*/, std::size_t first, std::size_t bytes) const {
    if (bytes < kLine / 2 && first % kLine != 0) return;
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kChains; ++r) {
      const auto* const begin = reinterpret_cast<const std::byte*>(rows[r]) + first;
      for (std::size_t at = 0; at < bytes; at += kLine) prefetch(begin + at);
    }
  }
};

/// Nothing that need be asked for.
struct NothingNext {
  HWY_INLINE NothingNext From(std::size_t /*r*/) const { return {}; }
  template <class Lane>
  HWY_INLINE void Prefetch(const Lane* const* /*rows*/, std::size_t /*first*/, std::size_t /*bytes*/) const {}
};

/// Where weight j of a row begins; of blocks, about there.
template <WeightType type>
constexpr std::size_t BytesBefore(std::size_t j) {
  return weight_bytes(type, j * 256) / 256;
}

/// acc[r] = lanes of rows[r]·h, r < kRows.
template <WeightType type, std::size_t kRows, class Next>
HWY_INLINE void AccumulateRows(const typename Stored<type>::Lane* const* rows, const Next& next,
                               std::size_t dim, const float* HWY_RESTRICT h, FloatVec* acc) {
  constexpr std::size_t kGroup = Stored<type>::kGroup;
  const FloatTag d;
  const typename Stored<type>::Lane* p[kRows];
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    p[r] = rows[r];
    acc[r] = hn::Zero(d);
  }
  std::size_t j = 0;
  for (; j + kGroup <= dim; j += kGroup) {
    next.Prefetch(p, BytesBefore<type>(j), BytesBefore<type>(kGroup));
    typename Stored<type>::Group group[kRows];
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) group[r].Take(p[r], j);
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kGroup; i += kLanes) {
      const FloatVec context = hn::LoadU(d, h + j + i);
      TOPKSOFTMAX_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) acc[r] = hn::MulAdd(group[r].Load(i), context, acc[r]);
    }
  }
  if constexpr (!kInBlocks<type>) {
    if (j == dim) return;
    const auto context = LoadTail<WeightType::float32>(h + j, dim - j);
    if (j > 0) {
      TOPKSOFTMAX_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) {
        acc[r] = hn::MulAdd(LoadRowTail<type>(p[r] + j, dim - j), context, acc[r]);
      }
      return;
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      acc[r] = hn::MulAdd(LoadTail<type>(p[r], dim), context, acc[r]);
    }
  }
}

/// The same as a call: what unpacks blocks is long, and would be compiled again wherever tiles are used.
template <WeightType type, class Next>
HWY_NOINLINE void AccumulateBlocks(const typename Stored<type>::Lane* const* rows, const Next& next,
                                   std::size_t dim, const float* HWY_RESTRICT h, FloatVec* acc) {
  FloatVec sums[kChains];  // in registers, which what a caller points at is not
  AccumulateRows<type, kChains>(rows, next, dim, h, sums);
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kChains; ++r) acc[r] = sums[r];
}

/// sums[r] = rows[r]·h for kRows rows, a multiple of kChains, and 0 for the other ones of kTile.
template <WeightType type, std::size_t kRows = kTile, class Next>
HWY_INLINE void DotTile(const typename Stored<type>::Lane* const* rows, const Next& next, std::size_t dim,
                        const float* HWY_RESTRICT h, float* HWY_RESTRICT sums) {
  FloatVec acc[kTile];
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = kRows; r < kTile; ++r) acc[r] = hn::Zero(FloatTag());
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kRows; r += kChains) {
    if constexpr (kInBlocks<type>) {
      AccumulateBlocks<type>(rows + r, next.From(r), dim, h, acc + r);
    } else {
      AccumulateRows<type, kChains>(rows + r, next.From(r), dim, h, acc + r);
    }
  }
  FoldTile(acc, sums);
}

/// row·h, bit for bit as in a tile.
template <WeightType type>
HWY_NOINLINE float DotRow(const typename Stored<type>::Lane* row, std::size_t dim,
                          const float* HWY_RESTRICT h) {
  FloatVec acc[1];
  AccumulateRows<type, 1>(&row, NothingNext(), dim, h, acc);
  return FoldOne(acc[0]);
}

/// Finite in any case: NaN becomes the lowest value.
template <class V>
HWY_INLINE V KeepFinite(V x) {
  const FloatTag d;
  const auto lowest = hn::Set(d, std::numeric_limits<float>::lowest());
  const auto highest = hn::Set(d, std::numeric_limits<float>::max());
  return hn::IfThenElse(hn::IsNaN(x), lowest, hn::Min(hn::Max(x, lowest), highest));
}

/// What turns kTile dot products into logits: scales and biases, taken at the rows that `row_of` names.
template <WeightType type>
class TileEnds {
 public:
  template <class RowOf>
  HWY_INLINE TileEnds(const Rows& rows, const RowOf& row_of) {
    if (rows.bias != nullptr) {
      for (std::size_t r = 0; r < kTile; ++r) bias_[r] = rows.bias[row_of(r)];
    } else {
      std::memset(bias_, 0, sizeof(bias_));
    }
    if constexpr (type == WeightType::int8) {
      for (std::size_t r = 0; r < kTile; ++r) scale_[r] = rows.scales[row_of(r)];
    }
  }

  HWY_INLINE void Finish(float* HWY_RESTRICT sums) const {
    const FloatTag d;
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kTile; i += kLanes) {
      auto x = hn::LoadU(d, sums + i);
      const auto b = hn::Load(d, bias_ + i);
      if constexpr (type == WeightType::int8) {
        x = hn::MulAdd(hn::Load(d, scale_ + i), x, b);
      } else {
        x = hn::Add(x, b);
      }
      hn::StoreU(KeepFinite(x), d, sums + i);
    }
  }

 private:
  HWY_ALIGN float bias_[kTile];
  HWY_ALIGN float scale_[type == WeightType::int8 ? kTile : 1];
};

/// Consecutive rows, the i-th being `first` + i, or the last.
struct RowsFrom {
  std::size_t first;
  std::size_t last;

  HWY_INLINE std::size_t operator()(std::size_t i) const { return std::min(first + i, last); }
};

/// Rows at places that nobody can guess: the i-th is ids[i], or that of the last.
struct RowsNamed {
  const TokenId* ids;
  std::size_t last;

  HWY_INLINE std::size_t operator()(std::size_t i) const {
    return static_cast<std::size_t>(ids[std::min(i, last)]);
  }
};

/// The logits of kTile rows, from row_of(first) on.
///
/// Rows in order are asked for in the order in which they lie. 32,000 × 512 in bfloat16 were read from memory
/// 2.2 times as fast by it on an AMD EPYC, where the same lines asked for row by row gained nothing. Rows at
/// any place are asked for only where they are blocks (1.5 to 1.9 times as fast); those of float32 then took
/// a quarter longer from the third cache.
template <WeightType type, class RowOf>
HWY_INLINE void LogitTile(const Rows& rows, const RowOf& row_of, std::size_t first,
                          const float* HWY_RESTRICT h, float* HWY_RESTRICT logits) {
  using Lane = typename Stored<type>::Lane;
  constexpr bool in_order = std::is_same_v<RowOf, RowsFrom>;
  constexpr bool names_next = !in_order && kInBlocks<type>;
  constexpr std::size_t named = names_next ? kTile + kChains : kTile;
  const Lane* p[named];
  for (std::size_t r = 0; r < named; ++r) p[r] = RowStart<Lane>(rows, row_of(first + r));
  if constexpr (names_next) {
    DotTile<type>(p, RowsNext<Lane>{p + kChains}, rows.dim, h, logits);
  } else if constexpr (in_order) {
    DotTile<type>(p, RowsInOrder{AheadOf(rows)}, rows.dim, h, logits);
  } else {
    DotTile<type>(p, NothingNext(), rows.dim, h, logits);
  }
  TileEnds<type>(rows, [&](std::size_t r) { return row_of(first + r); }).Finish(logits);
}

/// The same of the last count < kTile rows, for which a whole tile would be wasted: logits [kTile].
template <WeightType type, class RowOf>
HWY_NOINLINE void LogitRest(const Rows& rows, RowOf row_of, std::size_t first, std::size_t count,
                            const float* HWY_RESTRICT h, float* HWY_RESTRICT logits) {
  using Lane = typename Stored<type>::Lane;
  if (count > kChains) return LogitTile<type>(rows, row_of, first, h, logits);
  const Lane* p[kChains];
  for (std::size_t r = 0; r < kChains; ++r) p[r] = RowStart<Lane>(rows, row_of(first + r));
  if (count == 1) {
    std::fill_n(logits, kTile, 0.0F);
    logits[0] = DotRow<type>(p[0], rows.dim, h);
  } else {
    DotTile<type, kChains>(p, NothingNext(), rows.dim, h, logits);
  }
  TileEnds<type>(rows, [&](std::size_t r) { return row_of(first + r); }).Finish(logits);
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
