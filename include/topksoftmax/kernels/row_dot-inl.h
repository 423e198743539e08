// SPDX-License-Identifier: Apache-2.0
//
// The dot products of rows with contexts, in the one summation order that kernels/implementation.hpp
// promises. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_ROW_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_ROW_DOT_INL_H_
#undef TOPKSOFTMAX_KERNELS_ROW_DOT_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_ROW_DOT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/rows.hpp"

// Accumulators live in registers only if the loops over them vanish.
#if defined(__clang__)
#define TOPKSOFTMAX_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TOPKSOFTMAX_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());

/// Rows (or row–context pairs) whose dot products are computed together: enough chains of multiply-adds to
/// hide their latency, few enough pointers for the registers.
constexpr std::size_t kChains = 8;
/// Dot products that one call of a tile yields.
constexpr std::size_t kTile = 16;

// How each WeightType is stored, and loaded as float lanes.
template <WeightType type>
struct Stored;

template <>
struct Stored<WeightType::float32> {
  using Lane = float;
  static HWY_INLINE FloatVec Load(const float* p) { return hn::LoadU(FloatTag(), p); }
};

template <>
struct Stored<WeightType::float16> {
  using Lane = hwy::float16_t;
  static HWY_INLINE FloatVec Load(const Lane* p) {
    return hn::PromoteTo(FloatTag(), hn::LoadU(hn::Rebind<Lane, FloatTag>(), p));
  }
};

template <>
struct Stored<WeightType::bfloat16> {
  using Lane = hwy::bfloat16_t;
  static HWY_INLINE FloatVec Load(const Lane* p) {
    return hn::PromoteTo(FloatTag(), hn::LoadU(hn::Rebind<Lane, FloatTag>(), p));
  }
};

template <>
struct Stored<WeightType::int8> {
  using Lane = std::int8_t;
  static HWY_INLINE FloatVec Load(const Lane* p) {
    const hn::Rebind<std::int32_t, FloatTag> d32;
    return hn::ConvertTo(FloatTag(), hn::PromoteTo(d32, hn::LoadU(hn::Rebind<Lane, FloatTag>(), p)));
  }
};

/// The first `count` < kLanes values at p, zeros behind them; nothing past p + count is read.
template <WeightType type>
HWY_INLINE FloatVec LoadTail(const typename Stored<type>::Lane* p, std::size_t count) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (type == WeightType::float32) {
    return hn::MaskedLoad(hn::FirstN(FloatTag(), count), FloatTag(), p);
  }
#endif
  HWY_ALIGN typename Stored<type>::Lane padded[kLanes];
  std::memset(padded, 0, sizeof(padded));
  std::memcpy(padded, p, count * sizeof(padded[0]));
  return Stored<type>::Load(padded);
}

// Folding the lanes of kLanes accumulators into one vector of their sums. A sum's tree is the same in every
// position: lane i + lane i + N/2, then N/4 apart, …, neighbours last.

#if HWY_TARGET != HWY_SCALAR

// Each takes one shuffle and one or two blends: shuffles have one port to themselves on most processors, and
// folds are a good part of what a tile of a batch costs.

/// Halves of the whole vector: [a folded | b folded].
template <class V>
HWY_INLINE V FoldHalves(V a, V b) {
  const FloatTag d;
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
  const hn::Repartition<double, FloatTag> d64;
  const auto wide_a = hn::BitCast(d64, a);
  const auto wide_b = hn::BitCast(d64, b);
  return hn::Add(hn::BitCast(FloatTag(), hn::OddEven(wide_b, wide_a)),
                 hn::BitCast(FloatTag(), hn::CombineShiftRightBytes<8>(d64, wide_b, wide_a)));
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

/// Folds kTile accumulators into sums[kTile].
template <class V>
HWY_INLINE void FoldTile(const V* acc, float* HWY_RESTRICT sums) {
  TOPKSOFTMAX_UNROLL
  for (std::size_t i = 0; i < kTile; i += kLanes) hn::StoreU(Fold(acc + i), FloatTag(), sums + i);
}

/// acc[r] = lanes of rows[r]·h, r < kChains.
template <WeightType type>
HWY_INLINE void AccumulateRows(const typename Stored<type>::Lane* const* rows, std::size_t dim,
                               const float* HWY_RESTRICT h, FloatVec* acc) {
  const FloatTag d;
  const typename Stored<type>::Lane* p[kChains];
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kChains; ++r) {
    p[r] = rows[r];
    acc[r] = hn::Zero(d);
  }
  std::size_t j = 0;
  for (; j + kLanes <= dim; j += kLanes) {
    const auto context = hn::LoadU(d, h + j);
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kChains; ++r)
      acc[r] = hn::MulAdd(Stored<type>::Load(p[r] + j), context, acc[r]);
  }
  if (j < dim) {
    const auto context = LoadTail<WeightType::float32>(h + j, dim - j);
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kChains; ++r) {
      acc[r] = hn::MulAdd(LoadTail<type>(p[r] + j, dim - j), context, acc[r]);
    }
  }
}

/// sums[r] = rows[r]·h for kTile rows.
template <WeightType type>
HWY_INLINE void DotTile(const typename Stored<type>::Lane* const* rows, std::size_t dim,
                        const float* HWY_RESTRICT h, float* HWY_RESTRICT sums) {
  FloatVec acc[kTile];
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kTile; r += kChains) AccumulateRows<type>(rows + r, dim, h, acc + r);
  FoldTile(acc, sums);
}

/// Rows and contexts of the tile of a batch.
constexpr std::size_t kTileRows = 4;
constexpr std::size_t kTileContexts = kTile / kTileRows;

/// sums[q · kTileRows + r] = rows[r]·contexts[q] for the first kContexts ≤ kTileContexts of a tile's
/// contexts.
template <WeightType type, std::size_t kContexts>
HWY_INLINE void DotTileOf(const typename Stored<type>::Lane* const* rows, std::size_t dim,
                          const float* const* contexts, float* HWY_RESTRICT sums) {
  const FloatTag d;
  FloatVec acc[kTile];
  TOPKSOFTMAX_UNROLL
  for (std::size_t i = 0; i < kTile; ++i) acc[i] = hn::Zero(d);
  const auto add = [&acc](const FloatVec* row, FloatVec context, std::size_t q) HWY_ATTR {
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kTileRows; ++r) {
      acc[q * kTileRows + r] = hn::MulAdd(row[r], context, acc[q * kTileRows + r]);
    }
  };
  const typename Stored<type>::Lane* w[kTileRows];
  const float* h[kContexts];
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kTileRows; ++r) w[r] = rows[r];
  TOPKSOFTMAX_UNROLL
  for (std::size_t q = 0; q < kContexts; ++q) h[q] = contexts[q];
  std::size_t j = 0;
  FloatVec row[kTileRows];
  for (; j + kLanes <= dim; j += kLanes) {
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kTileRows; ++r) row[r] = Stored<type>::Load(w[r] + j);
    TOPKSOFTMAX_UNROLL
    for (std::size_t q = 0; q < kContexts; ++q) add(row, hn::LoadU(d, h[q] + j), q);
  }
  if (j < dim) {
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kTileRows; ++r) row[r] = LoadTail<type>(w[r] + j, dim - j);
    TOPKSOFTMAX_UNROLL
    for (std::size_t q = 0; q < kContexts; ++q) add(row, LoadTail<WeightType::float32>(h[q] + j, dim - j), q);
  }
  FoldTile(acc, sums);
}

/// The same for the first `count` of them: a batch's last tile costs what it holds.
template <WeightType type>
HWY_INLINE void DotTileBatch(const typename Stored<type>::Lane* const* rows, std::size_t dim,
                             const float* const* contexts, std::size_t count, float* HWY_RESTRICT sums) {
  static_assert(kTileContexts == 4 || kTileContexts < 4);
  if (count >= kTileContexts) return DotTileOf<type, kTileContexts>(rows, dim, contexts, sums);
  if (count == 1) return DotTileOf<type, 1>(rows, dim, contexts, sums);
  DotTileOf<type, std::min<std::size_t>(3, kTileContexts)>(rows, dim, contexts, sums);
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

/// The logits of kTile rows, row r being rows[row_of(r)].
template <WeightType type, class RowOf>
HWY_INLINE void LogitTile(const Rows& rows, const RowOf& row_of, const float* HWY_RESTRICT h,
                          float* HWY_RESTRICT logits) {
  const auto* data = static_cast<const typename Stored<type>::Lane*>(rows.data);
  const typename Stored<type>::Lane* p[kTile];
  for (std::size_t r = 0; r < kTile; ++r) p[r] = data + row_of(r) * rows.stride;
  DotTile<type>(p, rows.dim, h, logits);
  TileEnds<type>(rows, row_of).Finish(logits);
}

/// Calls body with the type of the rows as a constant.
template <class Body>
HWY_INLINE void WithType(WeightType type, const Body& body) {
  switch (type) {
    case WeightType::float32:
      return body(std::integral_constant<WeightType, WeightType::float32>());
    case WeightType::float16:
      return body(std::integral_constant<WeightType, WeightType::float16>());
    case WeightType::bfloat16:
      return body(std::integral_constant<WeightType, WeightType::bfloat16>());
    case WeightType::int8:
      return body(std::integral_constant<WeightType, WeightType::int8>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
