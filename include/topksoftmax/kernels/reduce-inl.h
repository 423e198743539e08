// SPDX-License-Identifier: Apache-2.0
//
// What happens to logits once they are there: maximum, sum of exponentials, top-k selection.
// Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_REDUCE_INL_H_
#undef TOPKSOFTMAX_KERNELS_REDUCE_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_REDUCE_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"
#include "topksoftmax/kernels/top_k_heap.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

inline float Max(const float* HWY_RESTRICT values, std::size_t count) {
  const FloatTag d;
  const auto none = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto best = none;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) best = hn::Max(best, hn::LoadU(d, values + i));
  // Highway's emulated MaxOfLanes knows nothing below the lowest finite value.
  float max = hn::GetLane(hn::AllTrue(d, hn::Eq(best, none)) ? none : hn::MaxOfLanes(d, best));
  for (; i < count; ++i) max = values[i] > max ? values[i] : max;
  return max;
}

/// exp(x − n·ln 2) for |x − n·ln 2| ≤ ln 2 / 2 and a whole |n| < 2¹², whose product with the upper part of
/// ln 2 is exact, fused or not.
template <class V>
HWY_INLINE V ExpOfRest(V x, V n) {
  const FloatTag d;
  const auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.0bfbe8p-15F), hn::NegMulAdd(n, hn::Set(d, 0x1.62ep-1F), x));
  // 1 + r + r²·q(r), q fitted to exp at Chebyshev's points of |r| ≤ ln 2 / 2: within 1.1e-8.
  auto p = hn::Set(d, 0x1.6d432ap-10F);
  for (const float c : {0x1.120b74p-7F, 0x1.5554eap-5F, 0x1.5554dcp-3F, 0.5F, 1.0F, 1.0F}) {
    p = hn::MulAdd(p, r, hn::Set(d, c));
  }
  return p;
}

/// exp(x) for x ≤ 0, within three roundings; what is below −87 counts as that, and sums do not notice. Half
/// the instructions of one for every x.
template <class V>
HWY_INLINE V ExpOfNonPositive(V x) {
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  // x = n·ln 2 + r; adding 1.5·2²³ rounds to a whole number, and leaves it in the lower bits.
  const auto to_whole = hn::Set(d, 0x1.8p23F);
  const auto held = hn::Max(x, hn::Set(d, -87.0F));
  const auto whole = hn::MulAdd(held, hn::Set(d, 0x1.715476p0F), to_whole);
  const auto p = ExpOfRest(held, hn::Sub(whole, to_whole));
  return hn::BitCast(d, hn::Add(hn::BitCast(d32, p), hn::ShiftLeft<23>(hn::BitCast(d32, whole))));
}

/// Vectors of one partial sum before it is added up in double precision: their rounding stays below 2⁻¹⁸.
constexpr std::size_t kSumBlock = 64;

/// Partial sums side by side, so that one exponential need not wait for the other.
constexpr std::size_t kSumChains = 4;

inline double SumExp(const float* HWY_RESTRICT values, std::size_t count, float max) {
  const FloatTag d;
  const auto shift = hn::Set(d, max);
  const auto exp_at = [&](std::size_t at)
                          HWY_ATTR { return ExpOfNonPositive(hn::Sub(hn::LoadU(d, values + at), shift)); };
  double sum = 0.0;
  std::size_t i = 0;
  while (i + kSumChains * kLanes <= count) {
    FloatVec partial[kSumChains];
    TOPKSOFTMAX_UNROLL
    for (std::size_t chain = 0; chain < kSumChains; ++chain) partial[chain] = hn::Zero(d);
    for (std::size_t n = 0; n < kSumBlock / kSumChains && i + kSumChains * kLanes <= count; ++n) {
      TOPKSOFTMAX_UNROLL
      for (std::size_t chain = 0; chain < kSumChains; ++chain, i += kLanes) {
        partial[chain] = hn::Add(partial[chain], exp_at(i));
      }
    }
    sum += static_cast<double>(hn::GetLane(
        hn::SumOfLanes(d, hn::Add(hn::Add(partial[0], partial[1]), hn::Add(partial[2], partial[3])))));
  }
  for (; i + kLanes <= count; i += kLanes) {
    sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, exp_at(i))));
  }
  if (i < count) {
    HWY_ALIGN float rest[kLanes];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      rest[lane] = i + lane < count ? values[i + lane] : -std::numeric_limits<float>::infinity();
    }
    sum += static_cast<double>(
        hn::GetLane(hn::SumOfLanes(d, ExpOfNonPositive(hn::Sub(hn::Load(d, rest), shift)))));
  }
  return sum;
}

/// Values within this have exponentials that are computed in float32, in units of the top level.
constexpr float kFloatExponent = 700.0F;

/// exp(x) in units of 2ᵗ for t = `top_bits`, to within three roundings; 0 is what adds to no level, and what
/// is beyond kFloatExponent. `least` is the lowest x that adds to a level, or just below it.
template <class V>
HWY_INLINE V ExpInUnits(V x, V least, std::int32_t top_bits) {
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const auto to_whole = hn::Set(d, 0x1.8p23F);
  const auto held = hn::Max(x, least);
  const auto whole = hn::MulAdd(held, hn::Set(d, 0x1.715476p0F), to_whole);
  const auto p = ExpOfRest(held, hn::Sub(whole, to_whole));
  const auto n = hn::Sub(hn::BitCast(d32, whole), hn::Set(d32, top_bits));
  const auto units = hn::BitCast(d, hn::Add(hn::BitCast(d32, p), hn::ShiftLeft<23>(n)));
  return hn::IfThenElseZero(hn::And(hn::Ge(x, least), hn::Le(x, hn::Set(d, kFloatExponent))), units);
}

/// Values that AddExp holds exponentials of at a time.
constexpr std::size_t kExpBlock = 64;

/// Values whose whole numbers, below 2³⁹ each, are added up in float64 before they are counted as integers.
constexpr std::size_t kExactSums = std::size_t{1} << 14;

/// Adds at most kExactSums exponentials, there being room for each, but those beyond kFloatExponent. Whoever
/// computes an exponential, and wherever it is in `values`, it adds the same.
inline void AddExpInRange(const float* HWY_RESTRICT values, std::size_t count, LogSumExp& sum) {
  const FloatTag d;
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, hn::ScalableTag<double>> d_half;
  constexpr std::size_t kLanes64 = kLanes == 1 ? 1 : kLanes / 2;
  constexpr double kTooHigh = 27.0;  // from there on, no value within kFloatExponent adds to a level,
  constexpr double kTooLow = -27.0;  // and below this there is none among the values
  if (!(sum.top < kTooHigh && sum.top >= kTooLow)) return;
  const float lowest = static_cast<float>((LogSumExp::kLevelBits * sum.top - 60.0) * 0x1.62e42fefa39efp-1);
  const auto least = hn::Set(d, std::max(lowest, -kFloatExponent));
  const auto top_bits = static_cast<std::int32_t>(LogSumExp::kLevelBits * sum.top);
  const auto level_units = hn::Set(d64, 0x1p40);
  auto level0 = hn::Zero(d64);
  auto level1 = hn::Zero(d64);
  HWY_ALIGN float units[kExpBlock];
  for (std::size_t first = 0; first < count; first += kExpBlock) {
    const std::size_t size = std::min(kExpBlock, count - first);
    std::size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      hn::Store(ExpInUnits(hn::LoadU(d, values + first + i), least, top_bits), d, units + i);
    }
    if (i < size) {
      HWY_ALIGN float rest[kLanes];
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        rest[lane] = i + lane < size ? values[first + i + lane] : -std::numeric_limits<float>::infinity();
      }
      hn::Store(ExpInUnits(hn::Load(d, rest), least, top_bits), d, units + i);
      i += kLanes;
    }
    for (std::size_t at = 0; at < i; at += kLanes64) {
      const auto all = hn::PromoteTo(d64, hn::Load(d_half, units + at));
      const auto whole = hn::Round(all);
      level0 = hn::Add(level0, whole);
      level1 = hn::Add(level1, hn::Round(hn::Mul(hn::Sub(all, whole), level_units)));
    }
  }
  const auto total = [&](auto level) HWY_ATTR {
    return static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(d64, level)));
  };
  sum.levels[0].add(total(level0));
  sum.levels[1].add(total(level1));
}

/// Adds exponentials of values of which `max` is the largest.
inline void AddExpUpTo(const float* HWY_RESTRICT values, std::size_t count, float max, LogSumExp& sum) {
  constexpr double kLow = -25.0;  // from there on downwards, what is below −kFloatExponent adds to a level
  sum.raise(max);
  for (std::size_t first = 0; first < count; first += kExactSums) {
    AddExpInRange(values + first, std::min(kExactSums, count - first), sum);
  }
  if (max <= kFloatExponent && sum.top > kLow) return;
  for (std::size_t i = 0; i < count; ++i) {
    if (!(values[i] >= -kFloatExponent && values[i] <= kFloatExponent)) sum.add(values[i]);
  }
}

inline void AddExp(const float* values, std::size_t count, LogSumExp& sum) {
  AddExpUpTo(values, count, Max(values, count), sum);
}

/// exponentials[i] = exp(values[i] − shift), which may be the values themselves.
inline void Exp(const float* values, std::size_t count, float shift, float* exponentials) {
  const FloatTag d;
  const auto down = hn::Set(d, shift);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::Exp(d, hn::Sub(hn::LoadU(d, values + i), down)), d, exponentials + i);
  }
  if (i == count) return;
  HWY_ALIGN float rest[kLanes] = {};
  for (std::size_t lane = 0; i + lane < count; ++lane) rest[lane] = values[i + lane];
  hn::Store(hn::Exp(d, hn::Sub(hn::Load(d, rest), down)), d, rest);
  for (std::size_t lane = 0; i + lane < count; ++lane) exponentials[i + lane] = rest[lane];
}

/// Pushes the tokens whose logit reaches the heap's threshold; id_of(i) names the i-th.
template <class IdOf>
HWY_INLINE void SelectInto(const float* HWY_RESTRICT logits, const IdOf& id_of, std::size_t count,
                           TopKHeap& heap) {
  const FloatTag d;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    if (hn::AllFalse(d, hn::Ge(hn::LoadU(d, logits + i), hn::Set(d, heap.threshold())))) continue;
    for (std::size_t lane = i; lane < i + kLanes; ++lane) {
      if (logits[lane] >= heap.threshold()) heap.push({logits[lane], id_of(lane)});
    }
  }
  for (; i < count; ++i) {
    if (logits[i] >= heap.threshold()) heap.push({logits[i], id_of(i)});
  }
}

inline void Select(const float* logits, const TokenId* ids, std::size_t count, TopKHeap& heap) {
  if (ids == nullptr) {
    SelectInto(
        logits, [](std::size_t i) { return static_cast<TokenId>(i); }, count, heap);
  } else {
    SelectInto(
        logits, [ids](std::size_t i) { return ids[i]; }, count, heap);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
