// SPDX-License-Identifier: Apache-2.0
//
// The sum of many floats, as fast as memory gives them. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_SUM_INL_H_
#undef TOPKSOFTMAX_KERNELS_SUM_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_SUM_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Eight sums hide the latency of an addition: fewer are slower in the first cache, software prefetches and
/// several streams gain nothing in any.
inline float Sum(const float* HWY_RESTRICT values, std::size_t count) {
  static_assert(kReadBlock % (8 * kLanes) == 0);
  const FloatTag d;
  FloatVec s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (std::size_t i = 0; i < count; i += 8 * kLanes) {
    const float* p = values + i;
    s0 = hn::Add(s0, hn::LoadU(d, p));
    s1 = hn::Add(s1, hn::LoadU(d, p + kLanes));
    s2 = hn::Add(s2, hn::LoadU(d, p + 2 * kLanes));
    s3 = hn::Add(s3, hn::LoadU(d, p + 3 * kLanes));
    s4 = hn::Add(s4, hn::LoadU(d, p + 4 * kLanes));
    s5 = hn::Add(s5, hn::LoadU(d, p + 5 * kLanes));
    s6 = hn::Add(s6, hn::LoadU(d, p + 6 * kLanes));
    s7 = hn::Add(s7, hn::LoadU(d, p + 7 * kLanes));
  }
  const FloatVec sum =
      hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
