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
#include "topksoftmax/kernels/targets.hpp"
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

/// How each WeightType is stored: rows of Lane, taken kGroup weights at a time. A Group has those from the
/// j-th on of a row after Take(row, j), j a multiple of kGroup: Load(i) are i … i + kLanes − 1 of them, i a
/// multiple of kLanes. Types whose weights have addresses have a Load of their own as well.
template <WeightType type>
struct Stored;

/// Types whose weights have addresses: any number of them is a row.
template <class Loaded, class StoredAs>
struct SingleWeights {
  using Lane = StoredAs;
  static constexpr std::size_t kGroup = kLanes;

  class Group {
   public:
    HWY_INLINE void Take(const Lane* row, std::size_t j) { first_ = row + j; }
    HWY_INLINE FloatVec Load(std::size_t i) const { return Loaded::Load(first_ + i); }

   private:
    const Lane* first_;
  };
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

/// The binary16 at p, which need not be aligned.
HWY_INLINE float LoadHalf(const std::uint8_t* p) {
  const hn::CappedTag<float, 4> few;
  const auto bits =
      hn::Set(hn::Rebind<std::uint16_t, decltype(few)>(), topksoftmax::detail::Float16::at(p).bits);
  return hn::GetLane(hn::PromoteTo(few, hn::BitCast(hn::Rebind<hwy::float16_t, decltype(few)>(), bits)));
}

// Groups of these types are blocks. One unpacks its integers to bytes, as many at a time as a vector holds,
// and multiplies its factors by d, before any of them meets a context.

/// Makes the compiler load what it has just stored. A load widens bytes and broadcasts a factor at little
/// cost; left alone, compilers keep values in registers and shuffle them.
template <class Object>
HWY_INLINE void HoldInMemory(Object& object) {
  asm("" : "+m"(object));
}

/// products[i] = factor · x[i], i < kCount.
template <std::size_t kCount, class Byte>
HWY_INLINE void MultiplyBytes(const Byte* x, float factor, float* HWY_RESTRICT products) {
  const hn::CappedTag<float, kCount> floats;
  const hn::Rebind<std::int32_t, decltype(floats)> ints;
  const hn::Rebind<Byte, decltype(floats)> bytes;
  TOPKSOFTMAX_UNROLL
  for (std::size_t i = 0; i < kCount; i += hn::MaxLanes(floats)) {
    const auto lanes = hn::ConvertTo(floats, hn::PromoteTo(ints, hn::LoadU(bytes, x + i)));
    hn::StoreU(hn::Mul(lanes, hn::Set(floats, factor)), floats, products + i);
  }
}

/// d (2 bytes), then q of 32 weights.
template <>
struct Stored<WeightType::q8_0> {
  using Lane = std::uint8_t;
  static constexpr std::size_t kGroup = weight_block(WeightType::q8_0).weights;

  class Group {
   public:
    HWY_INLINE void Take(const Lane* row, std::size_t j) {
      const Lane* const block = row + weight_bytes(WeightType::q8_0, j);
      d_ = LoadHalf(block);
      q_ = reinterpret_cast<const std::int8_t*>(block + 2);
    }
    HWY_INLINE FloatVec Load(std::size_t i) const {
      return hn::Mul(Stored<WeightType::int8>::Load(q_ + i), hn::Set(FloatTag(), d_));
    }

   private:
    float d_;
    const std::int8_t* q_;
  };
};

/// The lower four bits of each q (128 bytes), the upper two (64 bytes), scales of 16 weights each, d.
/// Of each half of a block, a byte of the first holds weights l and l + 64, or l + 32 and l + 96, of the
/// second l, l + 32, l + 64 and l + 96, l < 32.
template <>
struct Stored<WeightType::q6_k> {
  using Lane = std::uint8_t;
  static constexpr std::size_t kGroup = weight_block(WeightType::q6_k).weights;

  class Group {
   public:
    HWY_INLINE void Take(const Lane* row, std::size_t j) {
      const Lane* const block = row + weight_bytes(WeightType::q6_k, j);
      TakeHalf(block, block + 128, q_);
      TakeHalf(block + 64, block + 160, q_ + 128);
      MultiplyBytes<16>(reinterpret_cast<const std::int8_t*>(block + 192), LoadHalf(block + 208), scales_);
      HoldInMemory(*this);
    }
    HWY_INLINE FloatVec Load(std::size_t i) const {
      return hn::Mul(Stored<WeightType::int8>::Load(q_ + i), hn::Set(FloatTag(), scales_[i / 16]));
    }

   private:
    static HWY_INLINE void TakeHalf(const Lane* low, const Lane* high, std::int8_t* HWY_RESTRICT q) {
      const hn::CappedTag<Lane, 32> d;
      const hn::Rebind<std::int8_t, decltype(d)> as_signed;
      const auto four = hn::Set(d, 0x0f);
      TOPKSOFTMAX_UNROLL
      for (std::size_t l = 0; l < 32; l += hn::MaxLanes(d)) {
        const auto first = hn::LoadU(d, low + l);
        const auto second = hn::LoadU(d, low + 32 + l);
        const auto pairs = hn::LoadU(d, high + l);
        const auto store = [&](auto lower, auto shifted, std::size_t at) HWY_ATTR {
          const auto bits = hn::Or(lower, hn::And(shifted, hn::Set(d, 0x30)));
          hn::StoreU(hn::BitCast(as_signed, hn::Sub(bits, hn::Set(d, 32))), as_signed, q + at + l);
        };
        store(hn::And(first, four), hn::ShiftLeft<4>(pairs), 0);
        store(hn::And(second, four), hn::ShiftLeft<2>(pairs), 32);
        store(hn::ShiftRight<4>(first), pairs, 64);
        store(hn::ShiftRight<4>(second), hn::ShiftRight<2>(pairs), 96);
      }
    }

    std::int8_t q_[kGroup];  // less 32
    float scales_[16];       // d · scale
  };
};

/// d and dmin, scales and minima of 32 weights each (12 bytes), q (128 bytes: of each 64 weights, a byte
/// holds l and l + 32).
template <>
struct Stored<WeightType::q4_k> {
  using Lane = std::uint8_t;
  static constexpr std::size_t kGroup = weight_block(WeightType::q4_k).weights;

  class Group {
   public:
    HWY_INLINE void Take(const Lane* row, std::size_t j) {
      const Lane* const block = row + weight_bytes(WeightType::q4_k, j);
      const hn::CappedTag<Lane, 32> d;
      TOPKSOFTMAX_UNROLL
      for (std::size_t l = 0; l < 128; l += hn::MaxLanes(d)) {
        const auto pairs = hn::LoadU(d, block + 16 + l);
        Lane* const q = q_ + l / 32 * 64 + l % 32;
        hn::StoreU(hn::And(pairs, hn::Set(d, 0x0f)), d, q);
        hn::StoreU(hn::ShiftRight<4>(pairs), d, q + 32);
      }
      TakeFactors(block + 4, LoadHalf(block), LoadHalf(block + 2));
      HoldInMemory(*this);
    }
    HWY_INLINE FloatVec Load(std::size_t i) const {
      const FloatTag d;
      const auto bytes = hn::LoadU(hn::Rebind<Lane, FloatTag>(), q_ + i);
      const FloatVec q = hn::ConvertTo(d, hn::PromoteTo(IntTag(), bytes));
      // The product is exact, so that it is all one whether it is rounded before the minus.
      return hn::MulSub(q, hn::Set(d, scales_[i / 32]), hn::Set(d, minima_[i / 32]));
    }

   private:
    /// Eight bytes at p, the first one lowest.
    static HWY_INLINE std::uint64_t LoadWord(const Lane* p) {
      std::uint64_t word = 0;
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < 8; ++i) word |= static_cast<std::uint64_t>(p[i]) << (8 * i);
      return word;
    }

    /// factor · x of the eight bytes of a word.
    static HWY_INLINE void Multiply(std::uint64_t word, float factor, float* HWY_RESTRICT products) {
      Lane x[8];
      // One store: a load of bytes that were stored one by one would wait for all of them.
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < 8; ++i) x[i] = static_cast<Lane>(word >> (8 * i));
      HoldInMemory(x);
      MultiplyBytes<8>(x, factor, products);
    }

    /// The first four scales and minima are the lower six bits of bytes 0 to 3 and 4 to 7; the others have
    /// their lower four bits in bytes 8 to 11 and the upper two above those of the first.
    HWY_INLINE void TakeFactors(const Lane* p, float d, float dmin) {
      constexpr std::uint64_t kLower = 0xffffffff;
      const std::uint64_t words = LoadWord(p);
      const std::uint64_t nibbles = LoadWord(p + 8) & kLower;  // q lies behind
      const std::uint64_t first = words & 0x3f3f3f3f3f3f3f3f;
      const std::uint64_t upper = words >> 2 & 0x3030303030303030;
      const std::uint64_t lower = (nibbles | nibbles << 28) & 0x0f0f0f0f0f0f0f0f;
      const std::uint64_t others = upper | lower;
      Multiply((first & kLower) | others << 32, d, scales_);
      Multiply(first >> 32 | (others & ~kLower), dmin, minima_);
    }

    Lane q_[kGroup];
    float scales_[8];  // d · scale
    float minima_[8];  // dmin · min
  };
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
  constexpr bool masked = TOPKSOFTMAX_TARGET_HAS_AVX3;
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
#if TOPKSOFTMAX_TARGET_HAS_AVX3 || HWY_TARGET == HWY_SCALAR
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
