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

/// Whether a bound of the k-th largest of so many values leaves fewer to count among.
HWY_INLINE bool CanBeNarrowed(std::size_t count, std::size_t k) {
  return k <= kLanes && count > kLanes;
}

/// What the k-th largest of values is at the least, where they can be narrowed: the k-th largest of the
/// lanes' maxima, each of which is a value of its own.
HWY_INLINE float LeastOfKth(const FewValues& few, std::size_t k) {
  const FloatTag d;
  auto largest = hn::Load(d, few.values);
  for (std::size_t v = 1; v < few.vectors; ++v)
    largest = hn::Max(largest, hn::Load(d, few.values + v * kLanes));
  HWY_ALIGN float maxima[kLanes];
  hn::Store(largest, d, maxima);
  return KthOfFew(maxima, kLanes, k);
}

/// The k best of count ≤ kFew tokens by counting, for each, those that rank before it.
inline std::size_t RankByCounting(const float* logits, const TokenId* ids, std::size_t count, std::size_t k,
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

inline std::size_t RankFew(const float* logits, const TokenId* ids, std::size_t count, std::size_t k,
                           ScoredToken* best) {
  if (!CanBeNarrowed(count, k)) return RankByCounting(logits, ids, count, k, best);
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const FewValues few(logits, count);
  HWY_ALIGN TokenId tokens[kFew + kLanes] = {};
  std::copy_n(ids, count, tokens);
  const auto least = hn::Set(d, LeastOfKth(few, k));
  HWY_ALIGN float left[kFew + kLanes];
  HWY_ALIGN TokenId of_left[kFew + kLanes];
  std::size_t size = 0;
  for (std::size_t v = 0; v < few.vectors; ++v) {
    const auto x = hn::Load(d, few.values + v * kLanes);
    const auto reaches = hn::Ge(x, least);
    hn::StoreU(hn::Compress(hn::Load(d32, tokens + v * kLanes), hn::RebindMask(d32, reaches)), d32,
               of_left + size);
    hn::StoreU(hn::Compress(x, reaches), d, left + size);
    size += hn::CountTrue(d, reaches);
  }
  // Where fewer than k are allowed, what fills the last vector up is left too; it is not allowed either.
  return RankByCounting(left, of_left, size, k, best);
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
