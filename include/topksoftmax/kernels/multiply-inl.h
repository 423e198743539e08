// SPDX-License-Identifier: Apache-2.0
//
// Many vectors by one matrix. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_MULTIPLY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_MULTIPLY_INL_H_
#undef TOPKSOFTMAX_KERNELS_MULTIPLY_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_MULTIPLY_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/panels.hpp"
#include "topksoftmax/kernels/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Vectors that meet a panel together, and vectors of its columns: what the
/// registers hold, with two sums of each pair and their total.
constexpr std::size_t kMultiplied = 4;
constexpr std::size_t kPanelVectors = kLanes == 16 ? 2 : 1;

/// products[q][i] = Σ_j x[q][j] · panel[j][i] for kCount vectors and
/// kPanelVectors vectors of columns, in the order of CombineVectors.
template <std::size_t kCount>
HWY_INLINE void MultiplyTile(const float* x, std::size_t stride, const float* panel, std::size_t rows,
                             float* products, std::size_t products_stride) {
  const FloatTag d;
  FloatVec total[kCount][kPanelVectors];
  FloatVec even[kCount][kPanelVectors];
  FloatVec odd[kCount][kPanelVectors];
  const auto for_all = [](const auto& body) HWY_ATTR {
    TOPKSOFTMAX_UNROLL
    for (std::size_t q = 0; q < kCount; ++q) {
      TOPKSOFTMAX_UNROLL
      for (std::size_t v = 0; v < kPanelVectors; ++v) body(q, v);
    }
  };
  const auto add = [&](std::size_t j, auto& sums) HWY_ATTR {
    FloatVec row[kPanelVectors];
    TOPKSOFTMAX_UNROLL
    for (std::size_t v = 0; v < kPanelVectors; ++v) {
      row[v] = hn::LoadU(d, panel + j * Panels::kWidth + v * kLanes);
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t q = 0; q < kCount; ++q) {
      const auto factor = hn::Set(d, x[q * stride + j]);
      TOPKSOFTMAX_UNROLL
      for (std::size_t v = 0; v < kPanelVectors; ++v) sums[q][v] = hn::MulAdd(row[v], factor, sums[q][v]);
    }
  };
  for_all([&](std::size_t q, std::size_t v) HWY_ATTR { total[q][v] = hn::Zero(d); });
  for (std::size_t j = 0; j < rows;) {
    for_all([&](std::size_t q, std::size_t v) HWY_ATTR { even[q][v] = odd[q][v] = hn::Zero(d); });
    const std::size_t end = std::min(j + kCombined, rows);
    for (; j + 2 <= end; j += 2) {
      add(j, even);
      add(j + 1, odd);
    }
    if (j < end) add(j++, even);
    for_all([&](std::size_t q, std::size_t v)
                HWY_ATTR { total[q][v] = hn::Add(total[q][v], hn::Add(even[q][v], odd[q][v])); });
  }
  for_all([&](std::size_t q, std::size_t v)
              HWY_ATTR { hn::StoreU(total[q][v], d, products + q * products_stride + v * kLanes); });
}

inline void Multiply(const float* HWY_RESTRICT x, std::size_t stride, std::size_t count, const Panels& m,
                     float* HWY_RESTRICT products, std::size_t products_stride) {
  for (std::size_t first = 0; first < m.columns; first += kPanelVectors * kLanes) {
    const float* const panel = m.data + m.at(0, first);
    std::size_t q = 0;
    for (; q + kMultiplied <= count; q += kMultiplied) {
      MultiplyTile<kMultiplied>(x + q * stride, stride, panel, m.rows, products + q * products_stride + first,
                                products_stride);
    }
    for (; q < count; ++q) {
      MultiplyTile<1>(x + q * stride, stride, panel, m.rows, products + q * products_stride + first,
                      products_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
