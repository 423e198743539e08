// SPDX-License-Identifier: Apache-2.0
//
// Kernels over rows: the plain scans, and the fused ones that keep no logits.
// Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_SCAN_INL_H_
#undef TOPKSOFTMAX_KERNELS_SCAN_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_SCAN_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/multiply-inl.h"
#include "topksoftmax/kernels/reduce-inl.h"
#include "topksoftmax/kernels/row_dot-inl.h"
#include "topksoftmax/kernels/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Products and biases of the count rows that row_of names, in tiles.
template <WeightType type, class RowOf>
HWY_INLINE void ScanRows(const Rows& rows, const RowOf& row_of, std::size_t count,
                         const float* HWY_RESTRICT h, float* HWY_RESTRICT logits) {
  std::size_t i = 0;
  for (; i + kTile <= count; i += kTile) LogitTile<type>(rows, row_of, i, h, logits + i);
  if (i < count) {
    HWY_ALIGN float rest[kTile];
    LogitRest<type>(rows, row_of, i, count - i, h, rest);
    std::memcpy(logits + i, rest, (count - i) * sizeof(float));
  }
}

inline void Scan(const Rows& rows, std::size_t first, std::size_t count, const float* h, float* logits) {
  WithType(rows.type, [&](auto type) HWY_ATTR {
    ScanRows<decltype(type)::value>(rows, RowsFrom{first, first + count - 1}, count, h, logits);
  });
  TransformLogits(rows.transform, logits, count);
}

inline void ScanGathered(const Rows& rows, const TokenId* ids, std::size_t count, const float* h,
                         float* logits) {
  WithType(rows.type, [&](auto type) HWY_ATTR {
    ScanRows<decltype(type)::value>(rows, RowsNamed{ids, count - 1}, count, h, logits);
  });
  TransformLogits(rows.transform, logits, count);
}

/// Columns whose sums the first cache holds, and rows that are added to them at a time.
constexpr std::size_t kWideColumns = 1024;
constexpr std::size_t kRowsAtOnce = 8;

/// Adds Σ_j x_j · m[j][i] over kRows rows from the j-th on to sums [count], in two chains.
template <WeightType type, std::size_t kRows>
HWY_INLINE void AddRows(const Rows& m, std::size_t j, std::size_t first, std::size_t count,
                        const float* HWY_RESTRICT x, float* HWY_RESTRICT sums) {
  using Lane = typename Stored<type>::Lane;
  const FloatTag d;
  const Lane* const row = RowStart<Lane>(m, j) + first;
  FloatVec factors[kRows];
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) factors[r] = hn::Set(d, x[j + r]);
  for (std::size_t i = 0; i < count; i += kLanes) {
    FloatVec even = hn::Mul(Stored<type>::Load(row + i), factors[0]);
    if constexpr (kRows > 1) {
      FloatVec odd = hn::Mul(Stored<type>::Load(row + m.stride + i), factors[1]);
      TOPKSOFTMAX_UNROLL
      for (std::size_t r = 2; r + 1 < kRows; r += 2) {
        even = hn::MulAdd(Stored<type>::Load(row + r * m.stride + i), factors[r], even);
        odd = hn::MulAdd(Stored<type>::Load(row + (r + 1) * m.stride + i), factors[r + 1], odd);
      }
      even = hn::Add(even, odd);
    }
    hn::Store(hn::Add(hn::Load(d, sums + i), even), d, sums + i);
  }
}

/// The same for `count` columns from `first` on, at most kWideColumns: rows are read from one end
/// to the other, as memory likes it, and sums stay in the first cache.
template <WeightType type>
HWY_INLINE void CombineWide(const Rows& m, std::size_t first, std::size_t count, const float* HWY_RESTRICT x,
                            float* HWY_RESTRICT sums) {
  const FloatTag d;
  HWY_ALIGN float block[kWideColumns];
  HWY_ALIGN float total[kWideColumns];
  for (std::size_t i = 0; i < count; i += kLanes) hn::Store(hn::Zero(d), d, total + i);
  for (std::size_t j = 0; j < m.count;) {
    for (std::size_t i = 0; i < count; i += kLanes) hn::Store(hn::Zero(d), d, block + i);
    const std::size_t end = std::min(j + kCombined, m.count);
    for (; j + kRowsAtOnce <= end; j += kRowsAtOnce) AddRows<type, kRowsAtOnce>(m, j, first, count, x, block);
    for (; j < end; ++j) AddRows<type, 1>(m, j, first, count, x, block);
    for (std::size_t i = 0; i < count; i += kLanes) {
      hn::Store(hn::Add(hn::Load(d, total + i), hn::Load(d, block + i)), d, total + i);
    }
  }
  for (std::size_t i = 0; i < count; i += kLanes) hn::StoreU(hn::Load(d, total + i), d, sums + first + i);
}

/// Rows of fewer columns are as good as read from end to end where some columns are summed up at a time.
constexpr std::size_t kNarrow = 256;

template <WeightType type>
HWY_INLINE void CombineNarrow(const Rows& m, const float* HWY_RESTRICT x, float* HWY_RESTRICT sums) {
  std::size_t first = 0;
  const auto combine = [&](auto vectors) HWY_ATTR {
    CombineTile<type, 1, decltype(vectors)::value>(RowStart<typename Stored<type>::Lane>(m, 0) + first,
                                                   m.stride, m.count, x, 0, sums + first, 0);
    first += decltype(vectors)::value * kLanes;
  };
  while (first + 4 * kLanes <= m.dim && m.dim - first != 5 * kLanes && m.dim - first != 6 * kLanes) {
    combine(std::integral_constant<std::size_t, 4>());
  }
  while (first + 3 * kLanes <= m.dim) combine(std::integral_constant<std::size_t, 3>());
  while (first + 2 * kLanes <= m.dim) combine(std::integral_constant<std::size_t, 2>());
  while (first < m.dim) combine(std::integral_constant<std::size_t, 1>());
}

/// Of kCombined rows at a time: a long sum's roundings stay few.
inline void CombineRows(const Rows& m, const float* HWY_RESTRICT x, float* HWY_RESTRICT sums) {
  WithSingleType(m.type, [&](auto type) HWY_ATTR {
    constexpr WeightType kType = decltype(type)::value;
    if (m.dim < kNarrow) return CombineNarrow<kType>(m, x, sums);
    for (std::size_t first = 0; first < m.dim; first += kWideColumns) {
      CombineWide<kType>(m, first, std::min(kWideColumns, m.dim - first), x, sums);
    }
  });
}

/// Rows whose logits the fused kernels hold at a time.
constexpr std::size_t kFusedBlock = 64;

/// Applies a query's mask and biases to the logits of tokens first … first + count − 1. `next_bias` walks on.
inline void Edit(const LogitEdits& edits, std::size_t first, std::size_t count, std::size_t& next_bias,
                 float* HWY_RESTRICT logits) {
  if (!edits.allowed.empty()) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!edits.allows(static_cast<TokenId>(first + i))) logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
  for (; next_bias < edits.bias_count; ++next_bias) {
    const TokenBias& bias = edits.bias[next_bias];
    const auto token = static_cast<std::size_t>(bias.id);
    if (token >= first + count) break;
    if (token >= first && logits[token - first] != -std::numeric_limits<float>::infinity()) {
      logits[token - first] = add_bias(logits[token - first], bias.bias);
    }
  }
}

/// Takes a block of logits, tokens first … first + count − 1, none above `max`, into the heap and the sum.
HWY_INLINE void Absorb(const float* HWY_RESTRICT logits, std::size_t first, std::size_t count, float max,
                       TopKHeap& heap, LogSumExp* sum) {
  if (max >= heap.threshold()) {
    SelectInto(
        logits, [first](std::size_t i) { return static_cast<TokenId>(first + i); }, count, heap);
  }
  if (sum != nullptr && max > -std::numeric_limits<float>::infinity()) AddExpUpTo(logits, count, max, *sum);
}

/// Logits that FusedSelect takes at a time: what a context's maximum and threshold cost is shared by so many.
constexpr std::size_t kSelectBlock = 512;

/// A whole forbidden block need not be read.
HWY_INLINE bool Forbidden(const LogitEdits& edits, std::size_t first) {
  static_assert(kFusedBlock == 64, "a block of rows is a block of the mask");
  return !edits.allowed.empty() && edits.allowed.block(first / kFusedBlock) == 0;
}

inline void FusedScan(const Rows& rows, const float* h, const LogitEdits& edits, TopKHeap& heap,
                      LogSumExp* sum) {
  WithType(rows.type, [&](auto type) HWY_ATTR {
    HWY_ALIGN float logits[kFusedBlock];
    std::size_t next_bias = 0;
    for (std::size_t first = 0; first < rows.count; first += kFusedBlock) {
      if (Forbidden(edits, first)) continue;
      const std::size_t count = std::min(kFusedBlock, rows.count - first);
      ScanRows<decltype(type)::value>(rows, RowsFrom{first, first + count - 1}, count, h, logits);
      TransformLogits(rows.transform, logits, count);
      if (!edits.empty()) Edit(edits, first, count, next_bias, logits);
      Absorb(logits, first, count, Max(logits, count), heap, sum);
    }
  });
}

/// kTile rows of a batch, the last one repeated where there are fewer, in tiles with as many contexts.
template <WeightType type>
class BatchTile {
 public:
  template <class RowOf>
  HWY_INLINE BatchTile(const Rows& rows, const RowOf& row_of, std::size_t count)
      : dim_(rows.dim),
        parts_{MakePart(rows, row_of, count, 0), MakePart(rows, row_of, count, 1),
               MakePart(rows, row_of, count, 2), MakePart(rows, row_of, count, 3)} {}

  /// logits[q·kFusedBlock + r] of row r and context q < context_count ≤ kTileContexts. Asks for the rows so
  /// many bytes ahead.
  HWY_INLINE void Scan(const float* const* contexts, std::size_t context_count, std::size_t ahead,
                       float* HWY_RESTRICT logits) const {
    HWY_ALIGN float sums[kTile];
    for (std::size_t part = 0; part < kParts; ++part) {
      DotTileBatch<type>(parts_[part].rows, dim_, contexts, context_count, ahead, sums);
      parts_[part].ends.Finish(sums);
      for (std::size_t q = 0; q < context_count; ++q) {
        std::memcpy(logits + q * kFusedBlock + part * kTileRows, sums + q * kTileRows,
                    kTileRows * sizeof(float));
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

  std::size_t dim_;
  Part parts_[kParts];
};

/// The `count` contexts from the q-th on.
HWY_INLINE void TileContexts(const float* contexts, std::size_t stride, std::size_t q, std::size_t count,
                             const float** tile) {
  for (std::size_t i = 0; i < count; ++i) tile[i] = contexts + (q + i) * stride;
}

/// Asks for the lines of a row that will be read soon.
HWY_INLINE void PrefetchRow(const Rows& rows, std::size_t row) {
  const std::byte* const data = rows.row(row);
  for (std::size_t at = 0; at < rows.row_bytes(); at += kLine) prefetch(data + at);
}

/// logits[q·count + i] for i < count of the rows that row_of names and `batch` contexts; soon(i) is told
/// ahead of time that row i will be read, and those so many bytes ahead are asked for.
template <class RowOf, class Soon>
HWY_INLINE void ScanRowsBatch(const Rows& rows, const RowOf& row_of, const Soon& soon, std::size_t ahead,
                              std::size_t count, const float* contexts, std::size_t stride, std::size_t batch,
                              float* HWY_RESTRICT logits) {
  WithType(rows.type, [&](auto type) HWY_ATTR {
    using Lane = typename Stored<decltype(type)::value>::Lane;
    const auto row_at = [&](std::size_t i) { return row_of(std::min(i, count - 1)); };
    const float* tile[kTileContexts];
    HWY_ALIGN float block[kTile];
    for (std::size_t i = 0; i < count; i += kTileRows) {
      const Lane* p[kTileRows];
      for (std::size_t r = 0; r < kTileRows; ++r) {
        p[r] = RowStart<Lane>(rows, row_at(i + r));
        soon(row_at(i + kTileRows + r));
      }
      const std::size_t size = std::min(kTileRows, count - i);
      const TileEnds<decltype(type)::value> ends(rows,
                                                 [&](std::size_t r) { return row_at(i + r % kTileRows); });
      for (std::size_t q = 0, together = 0; q < batch; q += together) {
        together = ContextsOfTile<decltype(type)::value>(batch - q);
        TileContexts(contexts, stride, q, together, tile);
        DotTileBatch<decltype(type)::value>(p, rows.dim, tile, together, q == 0 ? ahead : 0, block);
        ends.Finish(block);
        for (std::size_t c = 0; c < together; ++c) {
          std::memcpy(logits + (q + c) * count + i, block + c * kTileRows, size * sizeof(float));
        }
      }
    }
  });
  TransformLogits(rows.transform, logits, batch * count);
}

inline void ScanBatch(const Rows& rows, const float* contexts, std::size_t stride, std::size_t batch,
                      float* logits) {
  ScanRowsBatch(
      rows, [](std::size_t i) { return i; }, [](std::size_t) {}, AheadOf(rows), rows.count, contexts, stride,
      batch, logits);
}

inline void ScanGatheredBatch(const Rows& rows, const TokenId* ids, std::size_t count, const float* contexts,
                              std::size_t stride, std::size_t batch, float* logits) {
  ScanRowsBatch(
      rows, [ids](std::size_t i) { return static_cast<std::size_t>(ids[i]); },
      [&rows](std::size_t row) { PrefetchRow(rows, row); }, 0, count, contexts, stride, batch, logits);
}

/// Contexts that share a tile of rows while it is in the first cache, as they are themselves.
constexpr std::size_t kGroupContexts = 64;

inline void FusedScanBatch(const Rows& rows, const float* contexts, std::size_t stride, std::size_t batch,
                           const LogitEdits& edits, TopKHeap* heaps, LogSumExp* sums) {
  if (batch == 0) return;
  WithType(rows.type, [&](auto type) HWY_ATTR {
    HWY_ALIGN float logits[kGroupContexts * kFusedBlock];
    std::size_t block_bias = 0;
    for (std::size_t first = 0; first < rows.count; first += kFusedBlock) {
      if (Forbidden(edits, first)) continue;
      const std::size_t count = std::min(kFusedBlock, rows.count - first);
      std::size_t next_bias = block_bias;
      for (std::size_t group = 0; group < batch; group += kGroupContexts) {
        const std::size_t size = std::min(kGroupContexts, batch - group);
        for (std::size_t i = 0; i < count; i += kTile) {
          const BatchTile<decltype(type)::value> rows_of_tile(
              rows, [&](std::size_t r) { return first + i + r; }, std::min(kTile, count - i));
          for (std::size_t q = 0, together = 0; q < size; q += together) {
            together = ContextsOfTile<decltype(type)::value>(size - q);
            const float* tile[kTileContexts];
            TileContexts(contexts, stride, group + q, together, tile);
            rows_of_tile.Scan(tile, together, group + q == 0 ? AheadOf(rows) : 0,
                              logits + q * kFusedBlock + i);
          }
        }
        for (std::size_t q = 0; q < size; ++q) {
          float* const of_context = logits + q * kFusedBlock;
          next_bias = block_bias;
          TransformLogits(rows.transform, of_context, count);
          if (!edits.empty()) Edit(edits, first, count, next_bias, of_context);
          Absorb(of_context, first, count, Max(of_context, count), heaps[group + q],
                 sums == nullptr ? nullptr : &sums[group + q]);
        }
      }
      block_bias = next_bias;
    }
  });
}

/// sums[i] = a[i] + b[i]; returns the largest.
HWY_INLINE float AddAndMax(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::size_t count,
                           float* HWY_RESTRICT sums) {
  const FloatTag d;
  auto best = hn::Set(d, std::numeric_limits<float>::lowest());
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto x = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    hn::Store(x, d, sums + i);
    best = hn::Max(best, x);
  }
  float max = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < count; ++i) {
    sums[i] = a[i] + b[i];
    max = std::max(max, sums[i]);
  }
  return max;
}

inline void FusedSelect(const float* HWY_RESTRICT products, const float* HWY_RESTRICT bias, std::size_t count,
                        TopKHeap& heap, LogSumExp* sum) {
  HWY_ALIGN float logits[kSelectBlock];
  for (std::size_t first = 0; first < count; first += kSelectBlock) {
    const std::size_t size = std::min(kSelectBlock, count - first);
    const float* block = products + first;
    if (bias == nullptr) {
      Absorb(block, first, size, Max(block, size), heap, sum);
    } else {
      const float max = AddAndMax(block, bias + first, size, logits);
      Absorb(logits, first, size, max, heap, sum);
    }
  }
}

inline void FusedAbsorb(const float* HWY_RESTRICT logits, std::size_t count, TopKHeap& heap, LogSumExp* sum) {
  for (std::size_t first = 0; first < count; first += kFusedBlock) {
    const std::size_t size = std::min(kFusedBlock, count - first);
    Absorb(logits + first, first, size, Max(logits + first, size), heap, sum);
  }
}

inline std::size_t Argmax(const Rows& rows, const float* h) {
  ScoredToken storage[1];
  TopKHeap best(storage, 1);
  FusedScan(rows, h, LogitEdits(), best, nullptr);
  return static_cast<std::size_t>(storage[0].id);
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
