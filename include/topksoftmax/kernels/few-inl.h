// SPDX-License-Identifier: Apache-2.0
//
// Ranks among few values, by counting: no branch depends on them, where sorting guesses wrong at every other
// comparison. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_FEW_INL_H_
#undef TOPKSOFTMAX_KERNELS_FEW_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_FEW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"
#include "topksoftmax/types.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Up to kFew values, filled up to whole vectors with −∞.
struct FewValues {
  FewValues(const float* x, std::size_t count) : vectors((count + kLanes - 1) / kLanes) {
    for (std::size_t i = count; i < vectors * kLanes; ++i)
      values[i] = -std::numeric_limits<float>::infinity();
    std::copy_n(x, count, values);
  }

  std::size_t vectors;
  HWY_ALIGN float values[kFew + kLanes];
};

inline float KthOfFew(const float* values, std::size_t count, std::size_t k) {
  const FloatTag d;
  const FewValues few(values, count);
  float found = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < count; ++i) {
    const auto own = hn::Set(d, few.values[i]);
    std::size_t larger = 0;
    for (std::size_t v = 0; v < few.vectors; ++v) {
      larger += hn::CountTrue(d, hn::Gt(hn::Load(d, few.values + v * kLanes), own));
    }
    // Of the values that fewer than k are larger than, the least.
    const float candidate = larger < k ? few.values[i] : std::numeric_limits<float>::infinity();
    found = candidate < found ? candidate : found;
  }
  return found;
}

inline std::size_t RankFew(const float* logits, const TokenId* ids, std::size_t count, std::size_t k,
                           ScoredToken* best) {
  constexpr float forbidden = -std::numeric_limits<float>::infinity();
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const FewValues few(logits, count);
  HWY_ALIGN TokenId tokens[kFew + kLanes] = {};
  std::copy_n(ids, count, tokens);
  std::size_t allowed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto own = hn::Set(d, few.values[i]);
    const auto own_id = hn::Set(d32, tokens[i]);
    std::size_t before = 0;
    for (std::size_t v = 0; v < few.vectors; ++v) {
      const auto others = hn::Load(d, few.values + v * kLanes);
      const auto lower_id = hn::RebindMask(d, hn::Lt(hn::Load(d32, tokens + v * kLanes), own_id));
      before += hn::CountTrue(d, hn::Or(hn::Gt(others, own), hn::And(hn::Eq(others, own), lower_id)));
    }
    const bool keeps = few.values[i] != forbidden;
    allowed += keeps ? 1 : 0;
    if (keeps && before < k) best[before] = {few.values[i], tokens[i]};
  }
  return allowed < k ? allowed : k;
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
