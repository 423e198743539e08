// SPDX-License-Identifier: Apache-2.0
//
// Ranks among few values, or the few of many that can be the best, by counting: no branch depends on them,
// where sorting guesses wrong at every other comparison. Included once for every instruction set.

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
#include "topksoftmax/kernels/reduce-inl.h"
#include "topksoftmax/kernels/row_dot-inl.h"
#include "topksoftmax/kernels/top_k_heap.hpp"
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

/// take(i, values[i … i + kLanes − 1]) for all count values; −∞ is behind the last.
template <class Take>
HWY_INLINE void ForVectors(const float* values, std::size_t count, const Take& take) {
  const FloatTag d;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) take(i, hn::LoadU(d, values + i));
  if (i == count) return;
  HWY_ALIGN float rest[kLanes];
  std::fill_n(rest, kLanes, -std::numeric_limits<float>::infinity());
  std::copy_n(values + i, count - i, rest);
  take(i, hn::Load(d, rest));
}

/// What the k-th largest of values is at the least, k ≤ kLanes: the k-th largest of the lanes' maxima, each
/// of which is a value of its own.
HWY_INLINE float LeastOfKth(const float* values, std::size_t count, std::size_t k) {
  const FloatTag d;
  auto largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  ForVectors(values, count, [&](std::size_t, FloatVec x) HWY_ATTR { largest = hn::Max(largest, x); });
  HWY_ALIGN float maxima[kLanes];
  hn::Store(largest, d, maxima);
  return KthOfFew(maxima, kLanes, k);
}

/// Tokens that may be among the best.
struct Narrowed {
  std::size_t size = 0;  ///< more than kFew: there were too many
  HWY_ALIGN float logits[kFew + kLanes];
  HWY_ALIGN TokenId ids[kFew + kLanes];

  /// Takes those that reach a logit.
  HWY_INLINE void Take(const float* values, const TokenId* tokens, std::size_t count, float least) {
    const FloatTag d;
    const hn::Rebind<std::int32_t, FloatTag> d32;
    ForVectors(values, count, [&](std::size_t i, FloatVec x) HWY_ATTR {
      const auto reaches = hn::Ge(x, hn::Set(d, least));
      if (size > kFew || hn::AllFalse(d, reaches)) return;
      HWY_ALIGN TokenId of_vector[kLanes] = {};
      std::copy_n(tokens + i, std::min(kLanes, count - i), of_vector);
      hn::StoreU(hn::Compress(hn::Load(d32, of_vector), hn::RebindMask(d32, reaches)), d32, ids + size);
      hn::StoreU(hn::Compress(x, reaches), d, logits + size);
      size += hn::CountTrue(d, reaches);
    });
  }
};

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
    allowed += keeps ? 1U : 0U;
    if (keeps && before < k) best[before] = {few.values[i], tokens[i]};
  }
  return allowed < k ? allowed : k;
}

inline std::size_t RankBest(const float* logits, const TokenId* ids, std::size_t count, std::size_t k,
                            ScoredToken* best) {
  if (k <= kLanes && count > kLanes) {
    Narrowed left;
    left.Take(logits, ids, count, LeastOfKth(logits, count, k));
    // Where fewer than k are allowed, what is behind the last is left too; it is not allowed either.
    if (left.size <= kFew) return RankByCounting(left.logits, left.ids, left.size, k, best);
  } else if (count <= kFew) {
    return RankByCounting(logits, ids, count, k, best);
  }
  TopKHeap heap(best, k);
  Select(logits, ids, count, heap);
  return heap.sort().size();
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
