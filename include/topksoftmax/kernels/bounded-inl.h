// SPDX-License-Identifier: Apache-2.0
//
// What is done with numbers that are known to lie in estimate ± radius: those that may reach a threshold are
// picked out, and the sum of all others' exponentials is bounded. Forbidden ones have no bounds.
// Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_BOUNDED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_BOUNDED_INL_H_
#undef TOPKSOFTMAX_KERNELS_BOUNDED_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_BOUNDED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/reduce-inl.h"
#include "topksoftmax/kernels/row_dot-inl.h"
#include "topksoftmax/types.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

// 2^(i+f) ≤ 2^i·(1+f) ≤ 1.0615·2^(i+f) for 0 ≤ f < 1, and 2^i·(1+f) are the very bits of the float whose
// exponent and mantissa, read as one number, are i + f. The upper half of these bits, rounded to a whole
// number, is what the lower half of a float's bits is after 1.5·2²³ is added: an exponential for a
// multiply-add and a shift.
constexpr double kLinearExcess = 1.0615;
/// One unit of x in the upper half of a float's bits: 2⁷/ln 2.
constexpr float kLinearScale = 184.66496F;
/// Moves whole numbers into a float's lower bits.
constexpr float kToBits = 0x1.8p23F;
/// Upper halves of the bits of 1, of the smallest float 2⁻¹²⁶, and of the largest power of two.
constexpr float kBitsOfOne = 0x3f80;
constexpr float kBitsOfSmallest = 0x0080;
constexpr float kBitsOfLargest = 0x7f00;
/// Rounding to a whole number moves the power by less than this share.
constexpr double kLinearRounding = 0x1p-7;
/// Room for the roundings of x and of an upper bound, as a share of 88 (no larger x counts) and of the shift.
constexpr double kExponentRounding = 0x1p-22;

/// 2^i·(1+f) for i + f = x/ln 2, as large as floats can be at the least and at the most.
template <class V>
HWY_INLINE V LinearExp(V x) {
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const auto bits = hn::MulAdd(x, hn::Set(d, kLinearScale), hn::Set(d, kToBits + kBitsOfOne));
  const auto held =
      hn::Min(hn::Max(bits, hn::Set(d, kToBits + kBitsOfSmallest)), hn::Set(d, kToBits + kBitsOfLargest));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(d32, held)));
}

/// Bounds of Σ exp(x_i − shift), x_i in estimate ± radius. Only exp(estimate + radius) is computed: from
/// below, a block of numbers is worth e^(−2·its largest radius) as much.
class BoundedSum {
 public:
  explicit BoundedSum(float shift) : shift_(shift) {}

  /// Of kSumBlock vectors at most.
  struct Lanes {
    FloatVec high;
    FloatVec radius;
  };
  static HWY_INLINE Lanes None() { return {hn::Zero(FloatTag()), hn::Zero(FloatTag())}; }

  /// Adds the lanes of `chosen`.
  template <class V, class M>
  HWY_INLINE void AddTo(Lanes& block, V estimate, V radius, M chosen) const {
    const auto high = LinearExp(hn::Sub(hn::Add(estimate, radius), hn::Set(FloatTag(), shift_)));
    block.high = hn::Add(block.high, hn::IfThenElseZero(chosen, high));
    block.radius = hn::Max(block.radius, hn::IfThenElseZero(chosen, radius));
  }

  HWY_INLINE void Take(const Lanes& block) {
    const FloatTag d;
    const auto high = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, block.high)));
    const auto radius = static_cast<double>(hn::GetLane(hn::MaxOfLanes(d, block.radius)));
    // What was held at the smallest float proves nothing from below.
    const double proven = std::max(high - static_cast<double>(kSumBlock * kLanes) * 0x1p-126, 0.0);
    // What has left float's range says nothing of how far it is from there.
    if (std::isfinite(high)) low_ += proven * std::exp(-2.0 * radius);
    high_ += high;
  }

  SumBounds Bounds() const {
    const double exponent = kExponentRounding * (88.0 + std::abs(static_cast<double>(shift_)));
    if (!(exponent < 1.0)) return {0.0, std::numeric_limits<double>::infinity()};
    return {low_ / kLinearExcess * (1.0 - kLinearRounding) * (1.0 - exponent),
            high_ * (1.0 + kLinearRounding) / (1.0 - exponent)};
  }

 private:
  float shift_;
  double low_ = 0.0;
  double high_ = 0.0;
};

/// Of numbers that are dropped nothing is kept.
struct Dropped {
  struct Lanes {};
  static HWY_INLINE Lanes None() { return {}; }
  template <class V, class M>
  HWY_INLINE void AddTo(Lanes&, V, V, M) const {}
  HWY_INLINE void Take(const Lanes&) {}
};

inline void LeaveOutForbidden(const AllowedTokens& allowed, const TokenId* HWY_RESTRICT tokens,
                              std::size_t count, float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const hn::Rebind<std::uint32_t, FloatTag> unsigned32;
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  if (const std::int32_t* const words = allowed.words(); words != nullptr) {
    for (; i + kLanes <= count; i += kLanes) {
      const auto token = hn::LoadU(d32, tokens + i);
      const auto word = hn::GatherIndex(d32, words, hn::ShiftRight<5>(token));
      const auto at = hn::And(token, hn::Set(d32, 31));
      const auto bits = hn::Shr(hn::BitCast(unsigned32, word), hn::BitCast(unsigned32, at));
      const auto stays = hn::RebindMask(d, hn::TestBit(bits, hn::Set(unsigned32, 1)));
      hn::StoreU(hn::IfThenElse(stays, hn::LoadU(d, estimates + i), nothing), d, estimates + i);
      hn::StoreU(hn::IfThenElseZero(stays, hn::LoadU(d, radii + i)), d, radii + i);
    }
  }
  for (; i < count; ++i) {
    if (!allowed.allows(tokens[i])) leave_out(estimates[i], radii[i]);
  }
}

/// Calls visit(estimate, radius, valid) for vectors of them, and flush() at least once in kSumBlock times.
template <class Visit, class Flush>
HWY_INLINE void ForBounded(const float* HWY_RESTRICT estimates, const float* HWY_RESTRICT radii,
                           std::size_t count, const Visit& visit, const Flush& flush) {
  const FloatTag d;
  std::size_t i = 0;
  while (i + kLanes <= count) {
    for (std::size_t n = 0; n < kSumBlock && i + kLanes <= count; ++n, i += kLanes) {
      visit(hn::LoadU(d, estimates + i), hn::LoadU(d, radii + i), hn::FirstN(d, kLanes));
    }
    flush();
  }
  if (i < count) {
    const std::size_t rest = count - i;
    visit(LoadTail<WeightType::float32>(estimates + i, rest), LoadTail<WeightType::float32>(radii + i, rest),
          hn::FirstN(d, rest));
    flush();
  }
}

/// Writes which of the numbers may reach the threshold, ascending, and gives all others to `rest`. Writes up
/// to a vector beyond the last.
template <class Rest>
HWY_INLINE std::size_t PickReaching(const float* HWY_RESTRICT estimates, const float* HWY_RESTRICT radii,
                                    std::size_t count, float threshold, TokenId* HWY_RESTRICT ids,
                                    Rest& rest) {
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const auto limit = hn::Set(d, threshold);
  const auto next = hn::Set(d32, static_cast<std::int32_t>(kLanes));
  auto id = hn::Iota(d32, 0);
  std::size_t found = 0;
  typename Rest::Lanes lanes = Rest::None();
  ForBounded(
      estimates, radii, count,
      [&](auto estimate, auto radius, auto valid) HWY_ATTR {
        const auto below = hn::Lt(hn::Add(estimate, radius), limit);
        rest.AddTo(lanes, estimate, radius, hn::And(below, valid));
        const auto reaching = hn::RebindMask(d32, hn::AndNot(below, valid));
        hn::StoreU(hn::Compress(id, reaching), d32, ids + found);
        found += hn::CountTrue(d32, reaching);
        id = hn::Add(id, next);
      },
      [&]() HWY_ATTR {
        rest.Take(lanes);
        lanes = Rest::None();
      });
  return found;
}

inline std::size_t Reaching(const float* estimates, const float* radii, std::size_t count, float threshold,
                            TokenId* ids) {
  Dropped rest;
  return PickReaching(estimates, radii, count, threshold, ids, rest);
}

inline Partition PartitionAt(const float* estimates, const float* radii, std::size_t count, float threshold,
                             TokenId* ids) {
  BoundedSum rest(threshold);
  const std::size_t found = PickReaching(estimates, radii, count, threshold, ids, rest);
  return {found, rest.Bounds()};
}

inline SumBounds SumExpBounds(const float* estimates, const float* radii, std::size_t count, float shift) {
  BoundedSum sum(shift);
  BoundedSum::Lanes lanes = BoundedSum::None();
  ForBounded(
      estimates, radii, count,
      [&](auto estimate, auto radius, auto valid) HWY_ATTR { sum.AddTo(lanes, estimate, radius, valid); },
      [&]() HWY_ATTR {
        sum.Take(lanes);
        lanes = BoundedSum::None();
      });
  return sum.Bounds();
}

/// Vectors whose maximum stands for all of them.
constexpr std::size_t kStrip = 8;

/// Lane by lane the maxima of strips of kStrip vectors, the last one perhaps shorter. Returns their number, a
/// multiple of kLanes.
inline std::size_t StripMaxima(const float* HWY_RESTRICT values, std::size_t count,
                               float* HWY_RESTRICT maxima) {
  const FloatTag d;
  std::size_t made = 0;
  std::size_t i = 0;
  for (; i + kStrip * kLanes <= count; i += kStrip * kLanes, made += kLanes) {
    auto max = hn::LoadU(d, values + i);
    TOPKSOFTMAX_UNROLL
    for (std::size_t n = 1; n < kStrip; ++n) max = hn::Max(max, hn::LoadU(d, values + i + n * kLanes));
    hn::StoreU(max, d, maxima + made);
  }
  if (i < count) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      float max = -std::numeric_limits<float>::infinity();
      for (std::size_t at = i + lane; at < count; at += kLanes) max = values[at] > max ? values[at] : max;
      maxima[made + lane] = max;
    }
    made += kLanes;
  }
  return made;
}

/// Of `count` values, how many are `limit` or more.
inline std::size_t CountFrom(const float* HWY_RESTRICT values, std::size_t count, float limit) {
  const FloatTag d;
  const auto least = hn::Set(d, limit);
  std::size_t found = 0;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    found += hn::CountTrue(d, hn::Ge(hn::LoadU(d, values + i), least));
  }
  for (; i < count; ++i) found += values[i] >= limit ? 1U : 0U;
  return found;
}

/// Writes first ≤ i < last for which values[i] ≥ limit, ascending; returns how many. Writes up to a vector
/// beyond the last.
inline std::size_t PickFrom(const float* HWY_RESTRICT values, std::size_t first, std::size_t last,
                            float limit, TokenId* HWY_RESTRICT ids) {
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const auto least = hn::Set(d, limit);
  const auto next = hn::Set(d32, static_cast<std::int32_t>(kLanes));
  auto id = hn::Iota(d32, static_cast<std::int32_t>(first));
  std::size_t found = 0;
  std::size_t i = first;
  for (; i + kLanes <= last; i += kLanes) {
    const auto reaching = hn::RebindMask(d32, hn::Ge(hn::LoadU(d, values + i), least));
    hn::StoreU(hn::Compress(id, reaching), d32, ids + found);
    found += hn::CountTrue(d32, reaching);
    id = hn::Add(id, next);
  }
  for (; i < last; ++i) {
    if (values[i] >= limit) ids[found++] = static_cast<TokenId>(i);
  }
  return found;
}

/// A finite number that at least `wanted` of the values reach, and few more; −∞ if so many are not finite.
inline float CutBelowBest(const float* values, std::size_t count, std::size_t wanted) {
  constexpr float none = -std::numeric_limits<float>::infinity();
  constexpr int kHalvings = 24;
  const float top = Max(values, count);
  if (!(std::abs(top) <= std::numeric_limits<float>::max())) return none;
  constexpr float kUnits = 64.0F;
  float step = 0.25F;  // logits differ by a few units
  while (CountFrom(values, count, top - step) < wanted) {
    step *= 2.0F;
    constexpr float lowest = std::numeric_limits<float>::lowest();
    if (step == kUnits && CountFrom(values, count, lowest) < wanted) return none;
    if (!(top - step >= lowest)) return none;
  }
  float low = top - step;
  float high = step > 0.25F ? top - 0.5F * step : top;
  std::size_t reaching = CountFrom(values, count, low);
  for (int n = 0; n < kHalvings && reaching > wanted + wanted / 2 + 4; ++n) {
    const float middle = low + 0.5F * (high - low);
    const std::size_t so_many = CountFrom(values, count, middle);
    if (so_many >= wanted) {
      low = middle;
      reaching = so_many;
    } else {
      high = middle;
    }
  }
  return low;
}

inline std::size_t Promising(const float* HWY_RESTRICT values, std::size_t count, std::size_t wanted,
                             float* HWY_RESTRICT maxima, TokenId* HWY_RESTRICT ids) {
  constexpr float none = -std::numeric_limits<float>::infinity();
  if (2 * kStrip * wanted > count) {  // too many for the maxima to tell them apart
    const float cut = CutBelowBest(values, count, wanted);
    return cut == none ? 0 : PickFrom(values, 0, count, cut, ids);
  }
  const std::size_t strips = StripMaxima(values, count, maxima);
  const float cut = CutBelowBest(maxima, strips, wanted);
  if (cut == none) return 0;
  const FloatTag d;
  const auto least = hn::Set(d, cut);
  std::size_t found = 0;
  for (std::size_t strip = 0; strip < strips; strip += kLanes) {
    if (hn::AllFalse(d, hn::Ge(hn::LoadU(d, maxima + strip), least))) continue;
    found += PickFrom(values, strip * kStrip, std::min(count, (strip + kLanes) * kStrip), cut, ids + found);
  }
  if (found <= 2 * wanted || found > strips) return found;
  // Neighbours are alike, so the maxima's cut lets many of theirs pass: cut once more, among these.
  for (std::size_t i = 0; i < found; ++i) maxima[i] = values[ids[i]];
  const float closer = CutBelowBest(maxima, found, wanted);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < found; ++i) {
    const bool keep = maxima[i] >= closer;
    ids[kept] = ids[i];
    kept += keep ? 1U : 0U;
  }
  return kept;
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
