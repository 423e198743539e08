// SPDX-License-Identifier: Apache-2.0
//
// Contexts rounded to whole numbers. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_ROUND_INL_H_
#undef TOPKSOFTMAX_KERNELS_ROUND_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_ROUND_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

inline float LargestMagnitude(const float* HWY_RESTRICT x, std::size_t count) {
  const FloatTag d;
  auto largest = hn::Zero(d);
  const auto take = [&](FloatVec value) HWY_ATTR {
    const auto magnitude = hn::Abs(value);
    largest = hn::IfThenElse(hn::Gt(magnitude, largest), magnitude, largest);
  };
  std::size_t j = 0;
  for (; j + kLanes <= count; j += kLanes) take(hn::LoadU(d, x + j));
  if (j < count) take(LoadTail<WeightType::float32>(x + j, count - j));
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

/// x within ± most; NaN becomes −most.
HWY_INLINE FloatVec Steps(FloatVec x, FloatVec most) {
  const auto held = hn::Min(hn::Max(x, hn::Neg(most)), most);
  return hn::IfThenElse(hn::IsNaN(x), hn::Neg(most), held);
}

/// A whole number less than 0.51 away, halves rounded away from zero.
HWY_INLINE IntVec ToNearest(FloatVec steps) {
  return hn::ConvertTo(IntTag(), hn::Add(steps, hn::CopySign(hn::Set(FloatTag(), 0.5F), steps)));
}

inline void RoundToShorts(const float* HWY_RESTRICT x, std::size_t count, float inverse, float most,
                          std::int16_t* HWY_RESTRICT n) {
  const FloatTag d;
  const hn::Rebind<std::int16_t, FloatTag> d16;
  const auto round = [&](FloatVec value) HWY_ATTR {
    return hn::DemoteTo(d16, ToNearest(Steps(hn::Mul(value, hn::Set(d, inverse)), hn::Set(d, most))));
  };
  std::size_t j = 0;
  for (; j + kLanes <= count; j += kLanes) hn::StoreU(round(hn::LoadU(d, x + j)), d16, n + j);
  if (j == count) return;
  HWY_ALIGN std::int16_t rest[kLanes];
  hn::Store(round(LoadTail<WeightType::float32>(x + j, count - j)), d16, rest);
  for (std::size_t lane = 0; j + lane < count; ++lane) n[j + lane] = rest[lane];
}

inline float RoundSegment(const float* HWY_RESTRICT x, float inverse, std::int8_t* HWY_RESTRICT n) {
  const FloatTag d;
  const hn::Rebind<std::int8_t, FloatTag> d8;
  auto squares = hn::Zero(d);
  for (std::size_t j = 0; j < CodeContext::kSegment; j += kLanes) {
    const auto quotient = hn::Mul(hn::LoadU(d, x + j), hn::Set(d, inverse));
    const auto whole = ToNearest(Steps(quotient, hn::Set(d, static_cast<float>(CodeContext::kLargest))));
    hn::StoreU(hn::DemoteTo(d8, whole), d8, n + j);
    const auto off = hn::Sub(quotient, hn::ConvertTo(d, whole));
    squares = hn::MulAdd(off, off, squares);
  }
  return hn::GetLane(hn::SumOfLanes(d, squares));
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
