// SPDX-License-Identifier: Apache-2.0
//
// Weights of every WeightType as lanes of floats. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_STORED_INL_H_
#undef TOPKSOFTMAX_KERNELS_STORED_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_STORED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/half.hpp"

// Accumulators live in registers only if the loops over them vanish.
#if defined(__clang__)
#define TOPKSOFTMAX_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TOPKSOFTMAX_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());

/// How each WeightType is stored: rows of Lane, taken kGroup weights at a time.
///
/// ForGroup(row, j, take) calls take(i, lanes) for the weights j + i … j + i + kLanes − 1 of a row, i = 0,
/// kLanes, … below kGroup, in this order; j is a multiple of kGroup. Types whose weights have addresses have
/// Load as well.
template <WeightType type>
struct Stored;

/// Types whose weights have addresses: any number of them is a row.
template <class Loaded, class StoredAs>
struct SingleWeights {
  using Lane = StoredAs;
  static constexpr std::size_t kGroup = kLanes;

  template <class Take>
  static HWY_INLINE void ForGroup(const Lane* row, std::size_t j, const Take& take) {
    take(0, Loaded::Load(row + j));
  }
};

template <>
struct Stored<WeightType::float32> : SingleWeights<Stored<WeightType::float32>, float> {
  static HWY_INLINE FloatVec Load(const Lane* p) { return hn::LoadU(FloatTag(), p); }
};

template <>
struct Stored<WeightType::float16> : SingleWeights<Stored<WeightType::float16>, hwy::float16_t> {
  static HWY_INLINE FloatVec Load(const Lane* p) {
    return hn::PromoteTo(FloatTag(), hn::LoadU(hn::Rebind<Lane, FloatTag>(), p));
  }
};

template <>
struct Stored<WeightType::bfloat16> : SingleWeights<Stored<WeightType::bfloat16>, hwy::bfloat16_t> {
  static HWY_INLINE FloatVec Load(const Lane* p) {
    return hn::PromoteTo(FloatTag(), hn::LoadU(hn::Rebind<Lane, FloatTag>(), p));
  }
};

template <>
struct Stored<WeightType::int8> : SingleWeights<Stored<WeightType::int8>, std::int8_t> {
  static HWY_INLINE FloatVec Load(const Lane* p) {
    const hn::Rebind<std::int32_t, FloatTag> d32;
    return hn::ConvertTo(FloatTag(), hn::PromoteTo(d32, hn::LoadU(hn::Rebind<Lane, FloatTag>(), p)));
  }
};

/// Types whose weights are stored in blocks: a row is whole ones.
template <WeightType type>
inline constexpr bool kInBlocks = weight_block(type).weights > 1;

using IntTag = hn::Rebind<std::int32_t, FloatTag>;
using IntVec = hn::Vec<IntTag>;

/// The binary16 at p, which need not be aligned, in every lane.
HWY_INLINE FloatVec BroadcastHalf(const std::uint8_t* p) {
  const auto bits = hn::Set(hn::Rebind<std::uint16_t, FloatTag>(), topksoftmax::detail::Float16::at(p).bits);
  return hn::PromoteTo(FloatTag(), hn::BitCast(hn::Rebind<hwy::float16_t, FloatTag>(), bits));
}

/// Bytes at p, a lane each.
HWY_INLINE IntVec LoadBytes(const std::uint8_t* p) {
  return hn::PromoteTo(IntTag(), hn::LoadU(hn::Rebind<std::uint8_t, FloatTag>(), p));
}

HWY_INLINE FloatVec SetFloat(int value) {
  return hn::Set(FloatTag(), static_cast<float>(value));
}

/// d (2 bytes), then q of 32 weights.
template <>
struct Stored<WeightType::q8_0> {
  using Lane = std::uint8_t;
  static constexpr std::size_t kGroup = 32;

  template <class Take>
  static HWY_INLINE void ForGroup(const Lane* row, std::size_t j, const Take& take) {
    const Lane* const block = row + j / 32 * 34;
    const auto* const q = reinterpret_cast<const std::int8_t*>(block + 2);
    const FloatVec d = BroadcastHalf(block);
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kGroup; i += kLanes) {
      take(i, hn::Mul(Stored<WeightType::int8>::Load(q + i), d));
    }
  }
};

/// The lower four bits of each q (128 bytes), the upper two (64 bytes), scales of 16 weights each, d.
/// Of each half of a block, a byte of the first holds weights l and l + 64, or l + 32 and l + 96, of the
/// second l, l + 32, l + 64 and l + 96, l < 32.
template <>
struct Stored<WeightType::q6_k> {
  using Lane = std::uint8_t;
  static constexpr std::size_t kGroup = 128;

  template <class Take>
  static HWY_INLINE void ForGroup(const Lane* row, std::size_t j, const Take& take) {
    const Lane* const block = row + j / 256 * 210;
    const std::size_t half = j / 128 % 2;
    const Lane* const low = block + half * 64;
    const Lane* const high = block + 128 + half * 32;
    HWY_ALIGN float scales[8];
    LoadScales(block + 192 + half * 8, BroadcastHalf(block + 208), scales);
    TakeQuarter<0>(low, high, scales, take);
    TakeQuarter<1>(low + 32, high, scales + 2, take);
    TakeQuarter<2>(low, high, scales + 4, take);
    TakeQuarter<3>(low + 32, high, scales + 6, take);
  }

 private:
  /// d · scale of eight signed bytes.
  static HWY_INLINE void LoadScales(const std::uint8_t* p, FloatVec d, float* HWY_RESTRICT scales) {
    const hn::CappedTag<float, 8> few;
    const hn::Rebind<std::int32_t, decltype(few)> ints;
    const hn::Rebind<std::int8_t, decltype(few)> bytes;
    const auto factor = hn::Set(few, hn::GetLane(d));
    for (std::size_t i = 0; i < 8; i += hn::Lanes(few)) {
      const auto scale = hn::PromoteTo(ints, hn::LoadU(bytes, reinterpret_cast<const std::int8_t*>(p) + i));
      hn::Store(hn::Mul(hn::ConvertTo(few, scale), factor), few, scales + i);
    }
  }

  /// Weights quarter · 32 to quarter · 32 + 31 of a half.
  template <std::size_t quarter, class Take>
  static HWY_INLINE void TakeQuarter(const Lane* low, const Lane* high, const float* HWY_RESTRICT scales,
                                     const Take& take) {
    const FloatTag d;
    const IntVec four = hn::Set(IntTag(), 0x0f);
    const IntVec two = hn::Set(IntTag(), 0x30);
    TOPKSOFTMAX_UNROLL
    for (std::size_t l = 0; l < 32; l += kLanes) {
      const IntVec nibbles = LoadBytes(low + l);
      const IntVec pairs = LoadBytes(high + l);
      const IntVec lower = quarter < 2 ? hn::And(nibbles, four) : hn::ShiftRight<4>(nibbles);
      const IntVec shifted = quarter == 0   ? hn::ShiftLeft<4>(pairs)
                             : quarter == 1 ? hn::ShiftLeft<2>(pairs)
                             : quarter == 2 ? pairs
                                            : hn::ShiftRight<2>(pairs);
      const FloatVec q = hn::ConvertTo(d, hn::Or(lower, hn::And(shifted, two)));
      const FloatVec scale = hn::Set(d, scales[l / 16]);
      // Both products are exact, so that it is all one whether they are rounded before the minus.
      take(quarter * 32 + l, hn::MulSub(q, scale, hn::Mul(scale, SetFloat(32))));
    }
  }
};

/// d and dmin, scales and minima of 32 weights each (12 bytes), q (128 bytes: of each 64 weights, a byte
/// holds l and l + 32).
template <>
struct Stored<WeightType::q4_k> {
  using Lane = std::uint8_t;
  static constexpr std::size_t kGroup = 64;

  template <class Take>
  static HWY_INLINE void ForGroup(const Lane* row, std::size_t j, const Take& take) {
    const Lane* const block = row + j / 256 * 144;
    const std::size_t part = j / 64 % 4;
    const Lane* const q = block + 16 + part * 32;
    const FloatVec d = BroadcastHalf(block);
    const FloatVec dmin = BroadcastHalf(block + 2);
    const SixBits lower = SixBitsOf(block + 4, 2 * part);
    const SixBits upper = SixBitsOf(block + 4, 2 * part + 1);
    const FloatVec lower_scale = hn::Mul(d, SetFloat(lower.scale));
    const FloatVec lower_min = hn::Mul(dmin, SetFloat(lower.min));
    const FloatVec upper_scale = hn::Mul(d, SetFloat(upper.scale));
    const FloatVec upper_min = hn::Mul(dmin, SetFloat(upper.min));
    // Products are exact, so that it is all one whether they are rounded before the minus.
    TOPKSOFTMAX_UNROLL
    for (std::size_t l = 0; l < 32; l += kLanes) {
      const IntVec nibbles = hn::And(LoadBytes(q + l), hn::Set(IntTag(), 0x0f));
      take(l, hn::MulSub(hn::ConvertTo(FloatTag(), nibbles), lower_scale, lower_min));
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t l = 0; l < 32; l += kLanes) {
      const IntVec nibbles = hn::ShiftRight<4>(LoadBytes(q + l));
      take(32 + l, hn::MulSub(hn::ConvertTo(FloatTag(), nibbles), upper_scale, upper_min));
    }
  }

 private:
  struct SixBits {
    int scale;
    int min;
  };

  /// The i-th of eight scales and minima: the first four of each are the lower bits of bytes 0 to 3 and 4 to
  /// 7, the others have their lower four bits in bytes 8 to 11 and the upper two above those of the first.
  static HWY_INLINE SixBits SixBitsOf(const Lane* p, std::size_t i) {
    if (i < 4) return {p[i] & 63, p[i + 4] & 63};
    return {(p[i + 4] & 15) | (p[i - 4] >> 6 << 4), (p[i + 4] >> 4) | (p[i] >> 6 << 4)};
  }
};

/// Where row i begins.
template <class Lane>
HWY_INLINE const Lane* RowStart(const Rows& rows, std::size_t i) {
  return reinterpret_cast<const Lane*>(rows.row(i));
}

/// The first `count` < kLanes values at p, zeros behind them; nothing past p + count is read.
template <WeightType type>
HWY_INLINE FloatVec LoadTail(const typename Stored<type>::Lane* p, std::size_t count) {
  using Lane = typename Stored<type>::Lane;
#if HWY_TARGET == HWY_AVX2
  constexpr bool masked = type == WeightType::float32;
#else
  constexpr bool masked = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL;
#endif
  HWY_ALIGN Lane padded[kLanes];
  if constexpr (masked) {
    const hn::Rebind<hwy::MakeUnsigned<Lane>, FloatTag> bits;
    const auto* const words = reinterpret_cast<const hwy::MakeUnsigned<Lane>*>(p);
    const auto loaded = hn::MaskedLoad(hn::FirstN(bits, count), bits, words);
    hn::Store(loaded, bits, reinterpret_cast<hwy::MakeUnsigned<Lane>*>(padded));
  } else {
    std::memset(padded, 0, sizeof(padded));
    std::memcpy(padded, p, std::min(count, kLanes) * sizeof(padded[0]));  // what g++ 12 does not see
  }
  return Stored<type>::Load(padded);
}

/// The same where at least kLanes − count more values of the row are before p: these are read again.
template <WeightType type>
HWY_INLINE FloatVec LoadRowTail(const typename Stored<type>::Lane* p, std::size_t count) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_SCALAR
  return LoadTail<type>(p, count);
#else
  // Lane l is to have value l, as in every other vector: the last kLanes values, turned round.
  static constexpr auto turned = [] {
    std::array<std::int32_t, 2 * kLanes> lanes{};
    for (std::size_t i = 0; i < 2 * kLanes; ++i) lanes[i] = static_cast<std::int32_t>(i % kLanes);
    return lanes;
  }();
  const FloatTag d;
  const auto lanes = hn::SetTableIndices(d, turned.data() + kLanes - count);
  const FloatVec last = hn::TableLookupLanes(Stored<type>::Load(p + count - kLanes), lanes);
  return hn::IfThenElseZero(hn::FirstN(d, count), last);
#endif
}

/// Calls body with the type of rows whose weights have addresses as a constant.
template <class Body>
HWY_INLINE void WithSingleType(WeightType type, const Body& body) {
  switch (type) {
    case WeightType::float32:
      return body(std::integral_constant<WeightType, WeightType::float32>());
    case WeightType::float16:
      return body(std::integral_constant<WeightType, WeightType::float16>());
    case WeightType::bfloat16:
      return body(std::integral_constant<WeightType, WeightType::bfloat16>());
    case WeightType::int8:
      return body(std::integral_constant<WeightType, WeightType::int8>());
    default:
      HWY_DASSERT(false);
  }
}

/// The same for rows of every type.
template <class Body>
HWY_INLINE void WithType(WeightType type, const Body& body) {
  switch (type) {
    case WeightType::q8_0:
      return body(std::integral_constant<WeightType, WeightType::q8_0>());
    case WeightType::q6_k:
      return body(std::integral_constant<WeightType, WeightType::q6_k>());
    case WeightType::q4_k:
      return body(std::integral_constant<WeightType, WeightType::q4_k>());
    default:
      return WithSingleType(type, body);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
