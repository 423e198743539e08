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
