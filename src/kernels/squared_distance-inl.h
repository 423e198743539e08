// SPDX-License-Identifier: Apache-2.0
//
// The squared Euclidean distance of two vectors. Included once for every instruction set.

#if defined(TOPKSOFTMAX_SRC_KERNELS_SQUARED_DISTANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_SRC_KERNELS_SQUARED_DISTANCE_INL_H_
#undef TOPKSOFTMAX_SRC_KERNELS_SQUARED_DISTANCE_INL_H_
#else
#define TOPKSOFTMAX_SRC_KERNELS_SQUARED_DISTANCE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "kernels/row_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topksoftmax::kernels {
namespace HWY_NAMESPACE {

inline float SquaredDistance(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::size_t dim) {
  constexpr std::size_t kSums = 4;  // as many chains of multiply-adds hide their latency
  const FloatTag d;
  FloatVec sums[kSums];
  TOPKSOFTMAX_UNROLL
  for (std::size_t i = 0; i < kSums; ++i) sums[i] = hn::Zero(d);
  const auto add = [](FloatVec sum, FloatVec x, FloatVec y) HWY_ATTR {
    const auto difference = hn::Sub(x, y);
    return hn::MulAdd(difference, difference, sum);
  };
  std::size_t j = 0;
  for (; j + kSums * kLanes <= dim; j += kSums * kLanes) {
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kSums; ++i) {
      sums[i] = add(sums[i], hn::LoadU(d, a + j + i * kLanes), hn::LoadU(d, b + j + i * kLanes));
    }
  }
  for (; j + kLanes <= dim; j += kLanes) sums[0] = add(sums[0], hn::LoadU(d, a + j), hn::LoadU(d, b + j));
  if (j < dim) {
    sums[1] = add(sums[1], LoadTail<WeightType::float32>(a + j, dim - j),
                  LoadTail<WeightType::float32>(b + j, dim - j));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

}  // namespace HWY_NAMESPACE
}  // namespace topksoftmax::kernels
HWY_AFTER_NAMESPACE();

#endif
