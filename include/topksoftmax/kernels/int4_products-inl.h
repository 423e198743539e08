// SPDX-License-Identifier: Apache-2.0
//
// Products of the int4 coordinates of rows with contexts. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_INT4_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_INT4_PRODUCTS_INL_H_
#undef TOPKSOFTMAX_KERNELS_INT4_PRODUCTS_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_INT4_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/int8_products-inl.h"
#include "topksoftmax/kernels/prefix_blocks.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// The same of int4 coordinates, in the form of those in int8: a function of u and dots[r] =
/// Σ_j (2·u_rj − 15) · n_j. Sums are modulo 2³², and what they end as is an int32.
template <class Form>
class Int4Products;

/// 15·Σ_j n_j, as a context's segments are shifted.
inline std::int32_t Int4Centre(const Int4Context& context, std::size_t width) {
  std::int32_t sum = 0;
  for (std::size_t segment = 0; segment < width / Int4Context::kSegment; ++segment) {
    sum *= 1 << context.shifts[segment];
    for (std::size_t j = 0; j < Int4Context::kSegment; ++j) {
      sum += context.n[segment * Int4Context::kSegment + j];
    }
  }
  return 15 * sum;
}

/// Bytes of a block that hold a segment, and eight coordinates of all rows.
constexpr std::size_t kInt4SegmentBytes = kBlockRows * Int4Context::kSegment / 2;
constexpr std::size_t kInt4GroupBytes = kBlockRows * 4;
constexpr std::size_t kInt4Groups = kInt4SegmentBytes / kInt4GroupBytes;

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX2

template <>
class Int4Products<ByteProducts> {
 public:
  Int4Products(const Int4Context& context, std::size_t width)
      : context_(context), segments_(width / Int4Context::kSegment), centre_(Int4Centre(context, width)) {}

  HWY_INLINE void operator()(const std::uint8_t* u, std::int32_t* HWY_RESTRICT dots) const {
    Vec32 acc[kAccs];
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kAccs; ++i) acc[i] = hn::Zero(Tag32());
    const std::int8_t* n = context_.n;
    for (std::size_t segment = 0; segment < segments_; ++segment, u += kInt4SegmentBytes) {
      if (const int shift = context_.shifts[segment]; shift != 0) {
        TOPKSOFTMAX_UNROLL
        for (std::size_t i = 0; i < kAccs; ++i) acc[i] = hn::ShiftLeftSame(acc[i], shift);
      }
      TOPKSOFTMAX_UNROLL
      for (std::size_t g = 0; g < kInt4Groups; ++g, n += 8) {
        const Vec32 lower_n = ByteProducts::Broadcast(n);
        const Vec32 upper_n = ByteProducts::Broadcast(n + 4);
        TOPKSOFTMAX_UNROLL
        for (std::size_t i = 0; i < kParts; ++i) {
          auto pairs = hn::LoadU(TagU8(), u + g * kInt4GroupBytes + 4 * i * kRows);
          HoldInRegister(pairs);
          Vec32* const chain = acc + g % kChainsOfInt4 * 2 * kParts + i;
          chain[0] = ByteProducts::AddByteProducts(chain[0], hn::And(pairs, hn::Set(TagU8(), 0x0f)), lower_n);
          chain[kParts] =
              ByteProducts::AddByteProducts(chain[kParts], hn::And(pairs, hn::Set(TagU8(), 0xf0)), upper_n);
        }
      }
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kParts; ++i) {
      Vec32 lower = acc[i];
      Vec32 upper = acc[kParts + i];
      TOPKSOFTMAX_UNROLL
      for (std::size_t chain = 2; chain < kAccs / kParts; chain += 2) {
        lower = hn::Add(lower, acc[chain * kParts + i]);
        upper = hn::Add(upper, acc[(chain + 1) * kParts + i]);
      }
      // Twice the sum of the lower halves, and of the upper ones, which count 16 times.
      const auto doubled = hn::Add(hn::ShiftLeft<1>(lower), hn::ShiftRight<3>(upper));
      hn::Store(hn::Sub(doubled, hn::Set(Tag32(), centre_)), Tag32(), dots + i * kRows);
    }
  }

 private:
  using Tag32 = ByteProducts::Tag32;
  using TagU8 = ByteProducts::TagU8;
  using Vec32 = ByteProducts::Vec32;

  /// What is used twice is loaded once.
  static HWY_INLINE void HoldInRegister(hn::Vec<TagU8>& vector) { asm("" : "+v"(vector.raw)); }

  static constexpr std::size_t kRows = hn::MaxLanes(Tag32());
  static constexpr std::size_t kParts = kBlockRows / kRows;
  /// Enough sums, of which each waits for itself.
  static constexpr std::size_t kChainsOfInt4 = kParts == 1 ? 2 : 1;
  static constexpr std::size_t kAccs = kChainsOfInt4 * 2 * kParts;

  Int4Context context_;
  std::size_t segments_;
  std::int32_t centre_;
};

#endif

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR

template <>
class Int4Products<PlainProducts> {
 public:
  Int4Products(const Int4Context& context, std::size_t width)
      : context_(context), width_(width), centre_(Int4Centre(context, width)) {}

  HWY_INLINE void operator()(const std::uint8_t* u, std::int32_t* HWY_RESTRICT dots) const {
    for (std::size_t r = 0; r < kBlockRows; ++r) {
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < width_; ++j) {
        if (j % Int4Context::kSegment == 0) sum *= 1 << context_.shifts[j / Int4Context::kSegment];
        const int pair = u[j / 8 * kInt4GroupBytes + r * 4 + j % 4];
        sum += (j / 4 % 2 == 0 ? pair % 16 : pair / 16) * context_.n[j];
      }
      dots[r] = static_cast<std::int32_t>(2 * static_cast<std::int64_t>(sum) - centre_);
    }
  }

 private:
  Int4Context context_;
  std::size_t width_;
  std::int32_t centre_;
};

#elif HWY_TARGET != HWY_AVX3_DL

/// A word holds coordinates i, 4 + i, 1 + i and 5 + i of eight, i = 0 in even words and 2 in odd ones, from
/// its lowest bits on.
template <>
class Int4Products<WordProducts> {
 public:
  Int4Products(const Int4Context& context, std::size_t width)
      : shifts_(context.shifts),
        segments_(width / Int4Context::kSegment),
        centre_(Int4Centre(context, width)) {
    constexpr std::size_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (std::size_t j = 0; j < width; ++j) n_[j] = context.n[j / 8 * 8 + order[j % 8]];
  }

  HWY_INLINE void operator()(const std::uint8_t* u, std::int32_t* HWY_RESTRICT dots) const {
    constexpr std::size_t lanes = hn::MaxLanes(Tag32());
    constexpr std::size_t parts = kBlockRows / lanes;
    hn::Vec<Tag32> acc[parts];
    hn::Vec<Tag32> more[parts];  // where NEON adds half of the products
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < parts; ++i) acc[i] = more[i] = hn::Zero(Tag32());
    const std::int16_t* n = n_;
    for (std::size_t segment = 0; segment < segments_; ++segment) {
      if (const int shift = shifts_[segment]; shift != 0) {
        TOPKSOFTMAX_UNROLL
        for (std::size_t i = 0; i < parts; ++i) {
          acc[i] = hn::ShiftLeftSame(acc[i], shift);
          more[i] = hn::ShiftLeftSame(more[i], shift);
        }
      }
      for (std::size_t g = 0; g < kInt4Groups; ++g, n += 8, u += kInt4GroupBytes) {
        TOPKSOFTMAX_UNROLL
        for (std::size_t i = 0; i < parts; ++i) {
          const auto words =
              hn::BitCast(TagU16(), hn::LoadU(hn::Repartition<std::uint8_t, Tag32>(), u + 4 * i * lanes));
          Add(words, n, acc[i], more[i]);
          Add(hn::ShiftRight<4>(words), n + 2, acc[i], more[i]);
          Add(hn::ShiftRight<8>(words), n + 4, acc[i], more[i]);
          Add(hn::ShiftRight<12>(words), n + 6, acc[i], more[i]);
        }
      }
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < parts; ++i) {
      const auto doubled = hn::ShiftLeft<1>(hn::RearrangeToOddPlusEven(acc[i], more[i]));
      hn::Store(hn::Sub(doubled, hn::Set(Tag32(), centre_)), Tag32(), dots + i * lanes);
    }
  }

 private:
  using Tag32 = WordProducts::Tag32;
  using Tag16 = WordProducts::Tag16;
  using TagU16 = WordProducts::TagU16;

  template <class V>
  static HWY_INLINE void Add(V words, const std::int16_t* two, hn::Vec<Tag32>& acc, hn::Vec<Tag32>& more) {
    const auto u = hn::BitCast(Tag16(), hn::And(words, hn::Set(TagU16(), 0x0f)));
    acc = hn::ReorderWidenMulAccumulate(Tag32(), u, WordProducts::Broadcast(two), acc, more);
  }

  const std::uint8_t* shifts_;
  std::size_t segments_;
  std::int32_t centre_;
  std::int16_t n_[PrefixBlocks::kMaxWidth];
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
