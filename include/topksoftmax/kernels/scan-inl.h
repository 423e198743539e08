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
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/batch_tile-inl.h"
#include "topksoftmax/kernels/logit_edits.hpp"
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

/// Rows whose logits the fused kernels hold at a time where a mask may leave them out, or for each context of
/// a batch.
constexpr std::size_t kFusedBlock = 64;

/// Applies a query's mask and biases to the logits of tokens first … first + count − 1: where there is a
/// mask, to those of a block of kFusedBlock. `next_bias` walks on.
inline void Edit(const LogitEdits& edits, std::size_t first, std::size_t count, std::size_t& next_bias,
                 float* HWY_RESTRICT logits) {
  if (!edits.allowed.empty()) {
    std::uint64_t forbidden = ~edits.allowed.block(first / kFusedBlock);
    for (; forbidden != 0; forbidden &= forbidden - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(forbidden));
      if (i >= count) break;
      logits[i] = -std::numeric_limits<float>::infinity();
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

/// Logits that they take at a time elsewhere: what a maximum and a threshold cost is shared by so many, and
/// their exponentials keep the rows behind them waiting less often.
constexpr std::size_t kSelectBlock = 512;

/// A whole forbidden block need not be read.
HWY_INLINE bool Forbidden(const LogitEdits& edits, std::size_t first) {
  static_assert(kFusedBlock == 64, "a block of rows is a block of the mask");
  return !edits.allowed.empty() && edits.allowed.block(first / kFusedBlock) == 0;
}

inline void FusedScan(const Rows& rows, const float* h, const LogitEdits& edits, TopKHeap& heap,
                      LogSumExp* sum) {
  WithType(rows.type, [&](auto type) HWY_ATTR {
    HWY_ALIGN float logits[kSelectBlock];
    const std::size_t block = edits.allowed.empty() ? kSelectBlock : kFusedBlock;
    std::size_t next_bias = 0;
    for (std::size_t first = 0; first < rows.count; first += block) {
      if (Forbidden(edits, first)) continue;
      const std::size_t count = std::min(block, rows.count - first);
      ScanRows<decltype(type)::value>(rows, RowsFrom{first, first + count - 1}, count, h, logits);
      TransformLogits(rows.transform, logits, count);
      if (!edits.empty()) Edit(edits, first, count, next_bias, logits);
      Absorb(logits, first, count, Max(logits, count), heap, sum);
    }
  });
}

/// Asks for the lines of a row that will be read soon.
HWY_INLINE void PrefetchRow(const Rows& rows, std::size_t row) {
  const std::byte* const data = rows.row(row);
  for (std::size_t at = 0; at < rows.row_bytes(); at += kLine) prefetch(data + at);
}

/// logits[q·logits_stride + i] for i < count of the rows that row_of names and a batch of contexts; soon(i)
/// is told ahead of time that row i will be read, and those so many bytes ahead are asked for.
template <class RowOf, class Soon>
HWY_INLINE void ScanRowsBatch(const Rows& rows, const RowOf& row_of, const Soon& soon, std::size_t ahead,
                              std::size_t count, const ContextRows& contexts, float* HWY_RESTRICT logits,
                              std::size_t logits_stride) {
  WithType(rows.type, [&](auto type) HWY_ATTR {
    for (std::size_t i = 0; i < count; i += kTile) {
      const BatchTile<decltype(type)::value> tile(
          rows, [&](std::size_t r) { return row_of(i + r); }, std::min(kTile, count - i));
      const auto soon_behind = [&](std::size_t part) {
        const std::size_t next = i + (part + 1) * kTileRows;
        for (std::size_t r = next; r < std::min(next + kTileRows, count); ++r) soon(row_of(r));
      };
      tile.Scan(contexts, ahead, soon_behind, logits + i, logits_stride);
    }
  });
  for (std::size_t q = 0; q < contexts.count; ++q) {
    TransformLogits(rows.transform, logits + q * logits_stride, count);
  }
}

inline void ScanBatch(const Rows& rows, const float* contexts, std::size_t stride, std::size_t batch,
                      float* logits, std::size_t logits_stride) {
  ScanRowsBatch(
      rows, [](std::size_t i) { return i; }, [](std::size_t) {}, kAhead, rows.count,
      {contexts, stride, batch}, logits, logits_stride);
}

inline void ScanGatheredBatch(const Rows& rows, const TokenId* ids, std::size_t count, const float* contexts,
                              std::size_t stride, std::size_t batch, float* logits) {
  ScanRowsBatch(
      rows, [ids](std::size_t i) { return static_cast<std::size_t>(ids[i]); },
      [&rows](std::size_t row) { PrefetchRow(rows, row); }, 0, count, {contexts, stride, batch}, logits,
      count);
}

/// Contexts whose logits for a block of rows are kept at a time.
constexpr std::size_t kGroupContexts = 64;

inline void FusedScanBatch(const Rows& rows, const float* contexts, std::size_t stride, std::size_t batch,
                           const LogitEdits* edits, TopKHeap* heaps, LogSumExp* sums) {
  WithType(rows.type, [&](auto type) HWY_ATTR {
    HWY_ALIGN float logits[kGroupContexts * kFusedBlock];
    for (std::size_t first = 0; first < rows.count; first += kFusedBlock) {
      const auto forbidden = [first](const LogitEdits& of_context) { return Forbidden(of_context, first); };
      if (std::all_of(edits, edits + batch, forbidden)) continue;
      const std::size_t count = std::min(kFusedBlock, rows.count - first);
      for (std::size_t group = 0; group < batch; group += kGroupContexts) {
        const ContextRows of_group = {contexts + group * stride, stride,
                                      std::min(kGroupContexts, batch - group)};
        for (std::size_t i = 0; i < count; i += kTile) {
          const BatchTile<decltype(type)::value> tile(
              rows, [&](std::size_t r) { return first + i + r; }, std::min(kTile, count - i));
          tile.Scan(
              of_group, group == 0 ? kAhead : 0, [](std::size_t) {}, logits + i, kFusedBlock);
        }
        for (std::size_t q = 0; q < of_group.count; ++q) {
          const LogitEdits& edited = edits[group + q];
          if (forbidden(edited)) continue;
          float* const of_context = logits + q * kFusedBlock;
          TransformLogits(rows.transform, of_context, count);
          if (!edited.empty()) {
            std::size_t next_bias = edited.first_bias(static_cast<TokenId>(first));
            Edit(edited, first, count, next_bias, of_context);
          }
          Absorb(of_context, first, count, Max(of_context, count), heaps[group + q],
                 sums == nullptr ? nullptr : &sums[group + q]);
        }
      }
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
