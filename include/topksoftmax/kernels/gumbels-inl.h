// SPDX-License-Identifier: Apache-2.0
//
// What the exponentials of many tokens are no less than (see TokenGumbels), many at a time. Included once for
// every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_GUMBELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_GUMBELS_INL_H_
#undef TOPKSOFTMAX_KERNELS_GUMBELS_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_GUMBELS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/stored-inl.h"
#include "topksoftmax/numeric/gumbel_blocks.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/types.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

using BitsTag = hn::ScalableTag<std::uint64_t>;
using BitsVec = hn::Vec<BitsTag>;
using DoubleTag = hn::RebindToFloat<BitsTag>;
using DoubleVec = hn::Vec<DoubleTag>;
using Blocks = topksoftmax::detail::GumbelBlocks;
using Mix = topksoftmax::detail::SplitMix;

/// SplitMix64's outputs for states, which are seed + (n + 1)·Mix::kIncrement.
HWY_INLINE BitsVec Mixed(BitsVec x) {
  const BitsTag d;
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<30>(x)), hn::Set(d, Mix::kFirstFactor));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<27>(x)), hn::Set(d, Mix::kSecondFactor));
  return hn::Xor(x, hn::ShiftRight<31>(x));
}

/// That of the output so many numbers further.
HWY_INLINE BitsVec MixedAt(BitsVec first, std::uint64_t number) {
  return Mixed(hn::Add(first, hn::Set(BitsTag(), number * Mix::kIncrement)));
}

/// What −log of the uniform numbers that bits stand for is no less than: TokenGumbels::least_exponential.
HWY_INLINE DoubleVec LeastExponential(BitsVec bits) {
  const DoubleTag d;
  constexpr std::uint64_t kOne = 0x3FF0000000000000U;
  const auto above_one = hn::BitCast(d, hn::Or(hn::ShiftRight<12>(bits), hn::Set(BitsTag(), kOne)));
  const auto x = hn::Sub(hn::Sub(hn::Set(d, 2.0), above_one), hn::Set(d, 0x1p-53));
  const auto cubic = hn::MulAdd(x, hn::Set(d, 1.0 / 3.0), hn::Set(d, 0.5));
  const auto series = hn::Mul(x, hn::MulAdd(x, cubic, hn::Set(d, 1.0)));
  return hn::Mul(series, hn::Set(d, Blocks::kRoundedDown));
}

/// 1 in lanes where small numbers a are no less than b.
HWY_INLINE BitsVec NoLess(BitsVec a, BitsVec b) {
  const hn::RebindToSigned<BitsTag> d;
  const auto less = hn::VecFromMask(d, hn::Lt(hn::BitCast(d, a), hn::BitCast(d, b)));
  return hn::BitCast(BitsTag(), hn::Add(less, hn::Set(d, 1)));
}

/// The state of blocks' first numbers.
HWY_INLINE BitsVec FirstState(std::uint64_t key, BitsVec blocks) {
  const BitsTag d;
  return hn::Add(hn::Mul(blocks, hn::Set(d, Blocks::kNumbers * Mix::kIncrement)),
                 hn::Set(d, key + Mix::kIncrement));
}

/// The tokens of blocks that have ranks, of the states of their first numbers: what their exponentials are no
/// less than, and their places, kRanked of each. (A struct of both would have a constructor, which GCC makes
/// without the instruction set on AArch64.)
HWY_INLINE void RanksOf(BitsVec first, DoubleVec* HWY_RESTRICT least, BitsVec* HWY_RESTRICT place) {
  const BitsTag d;
  static_assert(Blocks::kTokens == 16 && Blocks::kRanked == 3);
  const auto exponential = [](BitsVec bits, std::size_t rank) HWY_ATTR {
    return hn::Mul(LeastExponential(bits),
                   hn::Set(DoubleTag(), 1.0 / static_cast<double>(Blocks::behind(rank))));
  };
  const auto bits = Mixed(first);
  least[0] = exponential(bits, 0);
  place[0] = hn::And(bits, hn::Set(d, 15));

  // Of 15 places, and of 14: the upper half of 32 random bits times so many.
  least[1] = hn::Add(least[0], exponential(MixedAt(first, Blocks::number_of(1)), 1));
  const auto random1 = hn::ShiftRight<32>(MixedAt(first, Blocks::number_of(1) + 1));
  auto place1 = hn::ShiftRight<32>(hn::Sub(hn::ShiftLeft<4>(random1), random1));
  place1 = hn::Add(place1, NoLess(place1, place[0]));
  place[1] = place1;

  least[2] = hn::Add(least[1], exponential(MixedAt(first, Blocks::number_of(2)), 2));
  const auto random2 = hn::ShiftRight<32>(MixedAt(first, Blocks::number_of(2) + 1));
  auto place2 = hn::ShiftRight<32>(hn::Sub(hn::ShiftLeft<4>(random2), hn::ShiftLeft<1>(random2)));
  const auto is_first_lower = hn::Eq(NoLess(place1, place[0]), hn::Set(d, 1));
  place2 = hn::Add(place2, NoLess(place2, hn::IfThenElse(is_first_lower, place[0], place1)));
  place2 = hn::Add(place2, NoLess(place2, hn::IfThenElse(is_first_lower, place1, place[0])));
  place[2] = place2;
}

HWY_INLINE DoubleVec LeastExponentialOf(std::uint64_t key, BitsVec ids) {
  const BitsTag d;
  const DoubleTag to;
  const auto place = hn::And(ids, hn::Set(d, 15));
  const auto first = FirstState(key, hn::ShiftRight<4>(ids));
  DoubleVec ranked[Blocks::kRanked];
  BitsVec places[Blocks::kRanked];
  RanksOf(first, ranked, places);
  const auto own_state = hn::Add(hn::Mul(place, hn::Set(d, Mix::kIncrement)), first);
  auto least = hn::Add(ranked[2], LeastExponential(MixedAt(own_state, Blocks::kTokens)));
  for (std::size_t rank = 0; rank < Blocks::kRanked; ++rank) {
    least = hn::IfThenElse(hn::RebindMask(to, hn::Eq(places[rank], place)), ranked[rank], least);
  }
  return least;
}

inline void LeastExponentials(std::uint64_t key, const TokenId* HWY_RESTRICT ids, std::size_t count,
                              double* HWY_RESTRICT least) {
  const BitsTag d;
  const DoubleTag to;
  const hn::Rebind<TokenId, BitsTag> from;
  const hn::RebindToSigned<BitsTag> wide;
  const std::size_t lanes = hn::Lanes(d);
  const auto of = [&](const TokenId* some) HWY_ATTR {
    return LeastExponentialOf(key, hn::BitCast(d, hn::PromoteTo(wide, hn::LoadU(from, some))));
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(of(ids + i), to, least + i);
  if (i == count) return;
  TokenId rest_ids[hn::MaxLanes(d)] = {};
  double rest[hn::MaxLanes(d)];
  std::copy(ids + i, ids + count, rest_ids);
  hn::StoreU(of(rest_ids), to, rest);
  std::copy(rest, rest + (count - i), least + i);
}

inline std::size_t BlocksAbove(std::uint64_t key, std::size_t first, std::size_t count, std::uint64_t lowest,
                               std::uint64_t* HWY_RESTRICT found) {
  const BitsTag d;
  const hn::RebindToSigned<BitsTag> number;
  const std::size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(number, static_cast<std::int64_t>(lowest) - 1);
  const auto next = hn::Set(d, lanes * Blocks::kNumbers * Mix::kIncrement);
  auto state = FirstState(key, hn::Iota(d, first));
  std::size_t above = 0;
  for (std::size_t i = 0; i < count; i += 64) {
    // Not hn::Compress, which takes longer than all else for numbers of this size. No byte of a mask is kept
    // on its own: where GCC 12 spills one, it reads back three more.
    std::uint64_t bits = 0;
    TOPKSOFTMAX_UNROLL
    for (std::size_t at = 0; at < 64; at += lanes) {
      const auto upper = hn::BitCast(number, hn::ShiftRight<12>(Mixed(state)));
      std::uint8_t bytes[hn::MaxLanes(d) / 8 + 8];
      hn::StoreMaskBits(number, hn::Gt(upper, below), bytes);
      for (std::size_t n = 0; 8 * n < lanes; ++n) bits |= std::uint64_t{bytes[n]} << (at + 8 * n);
      state = hn::Add(state, next);
    }
    if (count - i < 64) bits &= (std::uint64_t{1} << (count - i)) - 1;
    for (; bits != 0; bits &= bits - 1) {
      found[above++] = first + i + static_cast<std::size_t>(std::countr_zero(bits));
    }
  }
  return above;
}

inline void RanksOfBlocks(std::uint64_t key, const std::uint64_t* HWY_RESTRICT blocks, std::size_t count,
                          std::size_t stride, double* HWY_RESTRICT least,
                          std::uint64_t* HWY_RESTRICT places) {
  const BitsTag d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    DoubleVec ranked[Blocks::kRanked];
    BitsVec places_of[Blocks::kRanked];
    RanksOf(FirstState(key, hn::LoadU(d, blocks + i)), ranked, places_of);
    for (std::size_t rank = 0; rank < Blocks::kRanked; ++rank) {
      hn::StoreU(ranked[rank], DoubleTag(), least + rank * stride + i);
      hn::StoreU(places_of[rank], d, places + rank * stride + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
