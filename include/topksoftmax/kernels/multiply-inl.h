// SPDX-License-Identifier: Apache-2.0
//
// Rows added up in proportions, for one vector of these or for many: vectors by a matrix. Included once for
// every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_MULTIPLY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_MULTIPLY_INL_H_
#undef TOPKSOFTMAX_KERNELS_MULTIPLY_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_MULTIPLY_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/panels.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/kernels/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// sums[q·sums_stride + i] = Σ_j x[q·stride + j] · rows[j·row_stride + i] for kCount vectors x and kVectors
/// vectors of columns, whose sums stay in registers. Of kCombined rows at a time: a long sum's roundings stay
/// few.
template <WeightType type, std::size_t kCount, std::size_t kVectors>
HWY_INLINE void CombineTile(const typename Stored<type>::Lane* HWY_RESTRICT rows, std::size_t row_stride,
                            std::size_t count, const float* HWY_RESTRICT x, std::size_t stride,
                            float* HWY_RESTRICT sums, std::size_t sums_stride) {
  using Sums = FloatVec[kCount][kVectors];
  const FloatTag d;
  const auto for_all = [](const auto& body) HWY_ATTR {
    TOPKSOFTMAX_UNROLL
    for (std::size_t q = 0; q < kCount; ++q) {
      TOPKSOFTMAX_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) body(q, v);
    }
  };
  const auto add = [&](const auto* at, std::size_t j, Sums& acc) HWY_ATTR {
    FloatVec row[kVectors];
    TOPKSOFTMAX_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) row[v] = Stored<type>::Load(at + v * kLanes);
    TOPKSOFTMAX_UNROLL
    for (std::size_t q = 0; q < kCount; ++q) {
      const auto factor = hn::Set(d, x[q * stride + j]);
      TOPKSOFTMAX_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) acc[q][v] = hn::MulAdd(row[v], factor, acc[q][v]);
    }
  };
  Sums total;
  for_all([&](std::size_t q, std::size_t v) HWY_ATTR { total[q][v] = hn::Zero(d); });
  for (std::size_t j = 0; j < count;) {
    Sums even;
    Sums odd;  // a second chain of each: one alone would wait for itself
    for_all([&](std::size_t q, std::size_t v) HWY_ATTR { even[q][v] = odd[q][v] = hn::Zero(d); });
    const std::size_t end = std::min(j + kCombined, count);
    for (; j + 2 <= end; j += 2, rows += 2 * row_stride) {
      add(rows, j, even);
      add(rows + row_stride, j + 1, odd);
    }
    if (j < end) add(rows, j++, even);
    for_all([&](std::size_t q, std::size_t v)
                HWY_ATTR { total[q][v] = hn::Add(total[q][v], hn::Add(even[q][v], odd[q][v])); });
  }
  for_all([&](std::size_t q, std::size_t v)
              HWY_ATTR { hn::StoreU(total[q][v], d, sums + q * sums_stride + v * kLanes); });
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

/// Vectors that meet a panel together, and vectors of its columns: what the registers hold, with two sums of
/// each pair and their total.
constexpr std::size_t kMultiplied = 4;
constexpr std::size_t kPanelVectors = kLanes == 16 ? 2 : 1;

inline void Multiply(const float* HWY_RESTRICT x, std::size_t stride, std::size_t count, const Panels& m,
                     float* HWY_RESTRICT products, std::size_t products_stride) {
  for (std::size_t first = 0; first < m.columns; first += kPanelVectors * kLanes) {
    const float* const panel = m.data + m.at(0, first);
    std::size_t q = 0;
    const auto multiply = [&](auto vectors) HWY_ATTR {
      CombineTile<WeightType::float32, decltype(vectors)::value, kPanelVectors>(
          panel, Panels::kWidth, m.rows, x + q * stride, stride, products + q * products_stride + first,
          products_stride);
      q += decltype(vectors)::value;
    };
    while (q + kMultiplied <= count) multiply(std::integral_constant<std::size_t, kMultiplied>());
    while (q < count) multiply(std::integral_constant<std::size_t, 1>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
