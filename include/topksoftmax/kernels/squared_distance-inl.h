// SPDX-License-Identifier: Apache-2.0
//
// The squared Euclidean distance of two vectors. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_SQUARED_DISTANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_SQUARED_DISTANCE_INL_H_
#undef TOPKSOFTMAX_KERNELS_SQUARED_DISTANCE_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_SQUARED_DISTANCE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Σ_j value(j)², where value(j) is a vector, or tail(j, count) its first lanes.
template <class Value, class Tail>
HWY_INLINE float SumOfSquares(std::size_t dim, const Value& value, const Tail& tail) {
  constexpr std::size_t kSums = 4;  // as many chains of multiply-adds hide their latency
  const FloatTag d;
  FloatVec sums[kSums];
  TOPKSOFTMAX_UNROLL
  for (std::size_t i = 0; i < kSums; ++i) sums[i] = hn::Zero(d);
  const auto add = [](FloatVec sum, FloatVec x) HWY_ATTR { return hn::MulAdd(x, x, sum); };
  std::size_t j = 0;
  for (; j + kSums * kLanes <= dim; j += kSums * kLanes) {
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kSums; ++i) sums[i] = add(sums[i], value(j + i * kLanes));
  }
  for (; j + kLanes <= dim; j += kLanes) sums[0] = add(sums[0], value(j));
  if (j < dim) sums[1] = add(sums[1], tail(j, dim - j));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

inline float SquaredDistance(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::size_t dim) {
  const FloatTag d;
  return SumOfSquares(
      dim, [&](std::size_t j) HWY_ATTR { return hn::Sub(hn::LoadU(d, a + j), hn::LoadU(d, b + j)); },
      [&](std::size_t j, std::size_t count) HWY_ATTR {
        return hn::Sub(LoadTail<WeightType::float32>(a + j, count),
                       LoadTail<WeightType::float32>(b + j, count));
      });
}

inline float SquaredLength(const float* HWY_RESTRICT x, std::size_t dim) {
  return SumOfSquares(
      dim, [x](std::size_t j) HWY_ATTR { return hn::LoadU(FloatTag(), x + j); },
      [x](std::size_t j, std::size_t count) HWY_ATTR { return LoadTail<WeightType::float32>(x + j, count); });
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
