// SPDX-License-Identifier: Apache-2.0
//
// What a layer's transform makes of products, and of their bounds.
// Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_TRANSFORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_TRANSFORM_INL_H_
#undef TOPKSOFTMAX_KERNELS_TRANSFORM_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_TRANSFORM_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstring>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// The logits of products, finite in any case.
template <class V>
HWY_INLINE V Transform(const LogitTransform& transform, V z) {
  const FloatTag d;
  if (transform.soft_cap == 0.0F) return KeepFinite(hn::Mul(z, hn::Set(d, transform.scale)));
  // Beyond this tanh is 1 in floats.
  const auto flat = hn::Set(d, 16.0F);
  const auto x = hn::Mul(z, hn::Set(d, transform.scale / transform.soft_cap));
  const auto held = hn::Min(hn::Max(x, hn::Neg(flat)), flat);
  return hn::Mul(hn::Tanh(d, held), hn::Set(d, transform.soft_cap));
}

inline void TransformLogits(const LogitTransform& transform, float* values, std::size_t count) {
  if (transform.is_identity()) return;
  const FloatTag d;
  const auto never = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto logits_of = [&](auto z) HWY_ATTR {
    return hn::IfThenElse(hn::Eq(z, never), never, Transform(transform, z));
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(logits_of(hn::LoadU(d, values + i)), d, values + i);
  if (i == count) return;
  HWY_ALIGN float last[kLanes];
  hn::Store(logits_of(LoadTail<WeightType::float32>(values + i, count - i)), d, last);
  std::memcpy(values + i, last, (count - i) * sizeof(float));
}

inline void TransformBounds(const LogitTransform& transform, const float* HWY_RESTRICT estimates,
                            const float* HWY_RESTRICT radii, std::size_t count,
                            float* HWY_RESTRICT logit_estimates, float* HWY_RESTRICT logit_radii) {
  const FloatTag d;
  const auto never = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto scale = hn::Set(d, transform.scale);
  // Twice what a logit may be wrong by, and the roundings here.
  const auto slack = hn::Set(d, 4.0F * kTransformError);
  const auto least = hn::Set(d, 4.0F * kTransformLoss);
  const auto most = hn::Set(d, std::numeric_limits<float>::max());
  const auto bound = [&](auto estimate, auto radius, float* to_estimates, float* to_radii) HWY_ATTR {
    const auto high = hn::Add(estimate, radius);
    const auto highest = Transform(transform, high);
    // The slope is nowhere above the scale: that saves a second tanh. An infinite width would leave NaN for
    // bounds, which sums take for nothing.
    const auto width = hn::Min(hn::Mul(radius, scale), most);
    const auto far = hn::Add(width, hn::MulAdd(hn::Add(hn::Abs(highest), width), slack, least));
    const auto middle = hn::Sub(highest, width);
    // NaN stays NaN, and what was left out stays out.
    const auto known = hn::IfThenElse(hn::Eq(high, high), middle, high);
    hn::StoreU(hn::IfThenElse(hn::Eq(estimate, never), never, known), d, to_estimates);
    hn::StoreU(far, d, to_radii);
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    bound(hn::LoadU(d, estimates + i), hn::LoadU(d, radii + i), logit_estimates + i, logit_radii + i);
  }
  if (i == count) return;
  const std::size_t rest = count - i;
  HWY_ALIGN float last[2 * kLanes];
  bound(LoadTail<WeightType::float32>(estimates + i, rest), LoadTail<WeightType::float32>(radii + i, rest),
        last, last + kLanes);
  std::memcpy(logit_estimates + i, last, rest * sizeof(float));
  std::memcpy(logit_radii + i, last + kLanes, rest * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
