// SPDX-License-Identifier: Apache-2.0
//
// The dot products of a few rows with the contexts of a batch: bit for bit those of row_dot-inl.h, with
// weights loaded once for several contexts. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_BATCH_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_BATCH_TILE_INL_H_
#undef TOPKSOFTMAX_KERNELS_BATCH_TILE_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_BATCH_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/kernels/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Rows and contexts that are multiplied at once, at the most.
constexpr std::size_t kTileRows = 4;
constexpr std::size_t kTileContexts = kTile / kTileRows;

/// Contexts that are. Of AVX2's 16 registers 12 are sums then, so that contexts and weights have room too;
/// blocks, which take more to unpack, gain nothing by it. (SSE4 has as many, but no multiply-add: three made
/// float32 a tenth faster, and types that must be unpacked a fifth slower.)
template <WeightType type>
constexpr std::size_t kContextsOf = HWY_TARGET == HWY_AVX2 && !kInBlocks<type> ? 3 : kTileContexts;

/// Those of the next tile, where so many are left. A tile of one takes hardly less time than one of two: four
/// are two and two rather than three and one.
template <WeightType type>
constexpr std::size_t ContextsOfTile(std::size_t left) {
  if (kContextsOf<type> == 3 && left == 4) return 2;
  return std::min(left, kContextsOf<type>);
}

/// sums[q · kTileRows + r] = rows[r]·contexts[q] for the first kContexts ≤ kTileContexts of a tile's
/// contexts. Asks for the rows so many bytes ahead.
template <WeightType type, std::size_t kContexts>
HWY_NOINLINE void DotTileOf(const typename Stored<type>::Lane* const* rows, std::size_t dim,
                            const float* const* contexts, std::size_t ahead, float* HWY_RESTRICT sums) {
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
  constexpr std::size_t kGroup = Stored<type>::kGroup;
  std::size_t j = 0;
  for (; j + kGroup <= dim; j += kGroup) {
    PrefetchInOrder<kTileRows>(w[0], ahead, BytesBefore<type>(j), BytesBefore<type>(kGroup));
    typename Stored<type>::Group group[kTileRows];
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kTileRows; ++r) group[r].Take(w[r], j);
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kGroup; i += kLanes) {
      if constexpr (kContextsOf<type> == 3) {
        // Row by row: one register is enough for their weights, where all four would push sums out.
        FloatVec context[kContexts];
        TOPKSOFTMAX_UNROLL
        for (std::size_t q = 0; q < kContexts; ++q) context[q] = hn::LoadU(d, h[q] + j + i);
        TOPKSOFTMAX_UNROLL
        for (std::size_t r = 0; r < kTileRows; ++r) {
          const FloatVec weights = group[r].Load(i);
          TOPKSOFTMAX_UNROLL
          for (std::size_t q = 0; q < kContexts; ++q) {
            acc[q * kTileRows + r] = hn::MulAdd(weights, context[q], acc[q * kTileRows + r]);
          }
        }
      } else {
        FloatVec weights[kTileRows];
        TOPKSOFTMAX_UNROLL
        for (std::size_t r = 0; r < kTileRows; ++r) weights[r] = group[r].Load(i);
        TOPKSOFTMAX_UNROLL
        for (std::size_t q = 0; q < kContexts; ++q) add(weights, hn::LoadU(d, h[q] + j + i), q);
      }
    }
  }
  if constexpr (!kInBlocks<type>) {
    if (j < dim) {
      FloatVec row[kTileRows];
      TOPKSOFTMAX_UNROLL
      for (std::size_t r = 0; r < kTileRows; ++r) row[r] = LoadTail<type>(w[r] + j, dim - j);
      TOPKSOFTMAX_UNROLL
      for (std::size_t q = 0; q < kContexts; ++q)
        add(row, LoadTail<WeightType::float32>(h[q] + j, dim - j), q);
    }
  }
  FoldTile(acc, sums);
}

/// The same for the first `count` of them, from 1 to kContextsOf: a batch's last tile costs what it holds.
template <WeightType type>
HWY_INLINE void DotTileBatch(const typename Stored<type>::Lane* const* rows, std::size_t dim,
                             const float* const* contexts, std::size_t count, std::size_t ahead,
                             float* HWY_RESTRICT sums) {
  if constexpr (kContextsOf<type> == 4) {
    if (count == 4) return DotTileOf<type, 4>(rows, dim, contexts, ahead, sums);
  }
  if (count == 3) return DotTileOf<type, 3>(rows, dim, contexts, ahead, sums);
  if (count == 2) return DotTileOf<type, 2>(rows, dim, contexts, ahead, sums);
  DotTileOf<type, 1>(rows, dim, contexts, ahead, sums);
}

/// The contexts of a batch.
struct ContextRows {
  const float* data;
  std::size_t stride;
  std::size_t count;
};

/// Up to kTile rows that meet a batch. Columns are not taken part by part, so that those of rows and contexts
/// stay in the first cache: of float32 and bfloat16 with d from 512 to 4,096 one gained, float32 at 4,096.
template <WeightType type>
class BatchTile {
 public:
  template <class RowOf>
  HWY_INLINE BatchTile(const Rows& rows, const RowOf& row_of, std::size_t count)
      : dim_(rows.dim),
        count_(count),
        parts_{MakePart(rows, row_of, count, 0), MakePart(rows, row_of, count, 1),
               MakePart(rows, row_of, count, 2), MakePart(rows, row_of, count, 3)} {}

  /// logits[q·stride + r] of row r and context q. Asks for the rows so many bytes ahead; soon(part) is told
  /// before rows kTileRows·part and on are met for the first time.
  template <class Soon>
  HWY_INLINE void Scan(const ContextRows& contexts, std::size_t ahead, const Soon& soon,
                       float* HWY_RESTRICT logits, std::size_t stride) const {
    HWY_ALIGN float sums[kTile];
    for (std::size_t q = 0, together = 0; q < contexts.count; q += together) {
      together = ContextsOfTile<type>(contexts.count - q);
      const float* tile[kTileContexts];
      for (std::size_t i = 0; i < together; ++i) tile[i] = contexts.data + (q + i) * contexts.stride;
      for (std::size_t part = 0; part * kTileRows < count_; ++part) {
        if (q == 0) soon(part);
        DotTileBatch<type>(parts_[part].rows, dim_, tile, together, q == 0 ? ahead : 0, sums);
        parts_[part].ends.Finish(sums);
        float* const to = logits + q * stride + part * kTileRows;
        for (std::size_t i = 0; i < together; ++i) Put(sums + i * kTileRows, part, to + i * stride);
      }
    }
  }

 private:
  using Lane = typename Stored<type>::Lane;
  static constexpr std::size_t kParts = kTile / kTileRows;
  static_assert(kParts == 4);

  struct Part {
    const Lane* rows[kTileRows];
    TileEnds<type> ends;
  };

  /// The last row repeated where there are fewer.
  template <class RowOf>
  static HWY_INLINE Part MakePart(const Rows& rows, const RowOf& row_of, std::size_t count,
                                  std::size_t part) {
    const auto row_at = [&](std::size_t r) {
      return row_of(std::min(part * kTileRows + r % kTileRows, count - 1));
    };
    Part made = {{}, {rows, row_at}};
    for (std::size_t r = 0; r < kTileRows; ++r) {
      made.rows[r] = RowStart<Lane>(rows, row_at(r));
    }
    return made;
  }

  /// The logits of a part's rows.
  HWY_INLINE void Put(const float* HWY_RESTRICT sums, std::size_t part, float* HWY_RESTRICT logits) const {
    const std::size_t rows = count_ - part * kTileRows;
    if (rows >= kTileRows) {
      std::memcpy(logits, sums, kTileRows * sizeof(float));
    } else {
      std::memcpy(logits, sums, rows * sizeof(float));
    }
  }

  std::size_t dim_;
  std::size_t count_;
  Part parts_[kParts];
};

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
