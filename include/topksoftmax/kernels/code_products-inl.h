// SPDX-License-Identifier: Apache-2.0
//
// Products of rows' codes of two and four bits with contexts. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_CODE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_CODE_PRODUCTS_INL_H_
#undef TOPKSOFTMAX_KERNELS_CODE_PRODUCTS_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_CODE_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/int8_products-inl.h"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/targets.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// What codes of some bits are made of.
template <std::size_t kBits>
struct CodeLayout {
  static constexpr std::size_t kInByte = 8 / kBits;
  static constexpr std::size_t kInGroup = 4 * kInByte;        ///< coordinates of four bytes
  static constexpr std::size_t kGroupBytes = kBlockRows * 4;  ///< of all rows
  static constexpr std::size_t kGroups = CodeContext::kSegment / kInGroup;
  static constexpr int kLargest = (1 << kBits) - 1;

  /// Code s of a byte.
  static constexpr std::uint8_t mask(std::size_t s) {
    return static_cast<std::uint8_t>(kLargest << (kBits * s));
  }

  /// kLargest·Σ_j n_j + offset, as a context's segments are shifted.
  static std::int32_t Centre(const CodeContext& context, std::size_t width) {
    std::int32_t sum = 0;
    for (std::size_t segment = 0; segment < width / CodeContext::kSegment; ++segment) {
      sum *= 1 << context.shifts[segment];
      for (std::size_t j = 0; j < CodeContext::kSegment; ++j) {
        sum += context.n[segment * CodeContext::kSegment + j];
      }
    }
    return kLargest * sum + context.offset;
  }
};

/// Products of codes in the form of those in int8: a function of the u of some blocks, of one or kTogether,
/// that makes dots Σ_j (2·u_rj − 2^bits + 1) · n_j − offset of each. Sums are modulo 2³², and what they end
/// as is an int32. While it reads a line it calls read(line), which may ask for those behind it.
template <class Form, std::size_t kBits>
class CodeProducts;

#if TOPKSOFTMAX_TARGET_HAS_AVX3_DL || HWY_TARGET == HWY_AVX2

template <std::size_t kBits>
class CodeProducts<ByteProducts, kBits> {
  using Layout = CodeLayout<kBits>;

 public:
  /// Two vectors share what they meet of a context.
  static constexpr std::size_t kTogether = kBlockVectors == 1 ? 2 : 1;

  CodeProducts(const CodeContext& context, std::size_t width)
      : context_(context),
        segments_(width / CodeContext::kSegment),
        centre_(Layout::Centre(context, width)) {}

  template <std::size_t kBlocks, class Read>
  HWY_INLINE void operator()(const std::uint8_t* const (&u)[kBlocks], IntVec (&dots)[kBlocks][kBlockVectors],
                             const Read& read) const {
    constexpr std::size_t kVectors = kBlocks * kBlockVectors;
    // Enough sums, of which each waits for itself.
    constexpr std::size_t kChains = Layout::kInByte * kVectors < 8 ? 2 : 1;
    constexpr std::size_t kAccs = kChains * Layout::kInByte * kVectors;
    Vec32 acc[kAccs];
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kAccs; ++i) acc[i] = hn::Zero(Tag32());
    const std::int8_t* n = context_.n;
    std::size_t at = 0;
    for (std::size_t segment = 0; segment < segments_; ++segment) {
      if (const int shift = context_.shifts[segment]; shift != 0) {
        TOPKSOFTMAX_UNROLL
        for (std::size_t i = 0; i < kAccs; ++i) acc[i] = hn::ShiftLeftSame(acc[i], shift);
      }
      TOPKSOFTMAX_UNROLL
      for (std::size_t g = 0; g < Layout::kGroups; ++g, n += Layout::kInGroup, at += Layout::kGroupBytes) {
        TOPKSOFTMAX_UNROLL
        for (std::size_t b = 0; b < kBlocks; ++b) read(u[b] + at);
        Bytes bytes[kVectors];
        TOPKSOFTMAX_UNROLL
        for (std::size_t v = 0; v < kVectors; ++v) {
          bytes[v] = hn::LoadU(TagU8(), u[v / kBlockVectors] + at + 4 * (v % kBlockVectors) * kLanes);
          HoldInRegister(bytes[v]);
        }
        TOPKSOFTMAX_UNROLL
        for (std::size_t s = 0; s < Layout::kInByte; ++s) {
          auto four = ByteProducts::Broadcast(n + 4 * s);
          if (kVectors > 1) HoldInRegister(four);
          TOPKSOFTMAX_UNROLL
          for (std::size_t v = 0; v < kVectors; ++v) {
            Vec32& sum = acc[((g % kChains) * Layout::kInByte + s) * kVectors + v];
            sum = ByteProducts::AddByteProducts(sum, hn::And(bytes[v], hn::Set(TagU8(), Layout::mask(s))),
                                                four);
          }
        }
      }
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) {
      auto doubled = hn::Set(Tag32(), -centre_);
      TOPKSOFTMAX_UNROLL
      for (std::size_t s = 0; s < Layout::kInByte; ++s) {
        Vec32 sum = acc[s * kVectors + v];
        TOPKSOFTMAX_UNROLL
        for (std::size_t chain = 1; chain < kChains; ++chain) {
          sum = hn::Add(sum, acc[(chain * Layout::kInByte + s) * kVectors + v]);
        }
        // Code s of a byte counts 2^(bits·s) times.
        doubled = hn::Add(doubled, hn::ShiftLeft<1>(hn::ShiftRightSame(sum, static_cast<int>(kBits * s))));
      }
      dots[v / kBlockVectors][v % kBlockVectors] = doubled;
    }
  }

 private:
  using Tag32 = ByteProducts::Tag32;
  using TagU8 = ByteProducts::TagU8;
  using Vec32 = ByteProducts::Vec32;
  using Bytes = hn::Vec<TagU8>;

  /// What is used several times is loaded once.
  template <class Vector>
  static HWY_INLINE void HoldInRegister(Vector& vector) {
    asm("" : "+v"(vector.raw));
  }

  CodeContext context_;
  std::size_t segments_;
  std::int32_t centre_;
};

#endif

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR

template <std::size_t kBits>
class CodeProducts<PlainProducts, kBits> {
  using Layout = CodeLayout<kBits>;

 public:
  static constexpr std::size_t kTogether = 1;

  CodeProducts(const CodeContext& context, std::size_t width)
      : context_(context), width_(width), centre_(Layout::Centre(context, width)) {}

  template <class Read>
  HWY_INLINE void operator()(const std::uint8_t* const (&blocks)[1], IntVec (&dots)[1][kBlockVectors],
                             const Read& read) const {
    const std::uint8_t* const u = blocks[0];
    for (std::size_t at = 0; at < width_ / Layout::kInGroup * Layout::kGroupBytes; at += kLine) read(u + at);
    HWY_ALIGN std::int32_t sums[kBlockRows];
    for (std::size_t r = 0; r < kBlockRows; ++r) {
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < width_; ++j) {
        if (j % CodeContext::kSegment == 0) sum *= 1 << context_.shifts[j / CodeContext::kSegment];
        const int byte = u[j / Layout::kInGroup * Layout::kGroupBytes + r * 4 + j % 4];
        sum += (byte >> (kBits * (j % Layout::kInGroup / 4)) & Layout::kLargest) * context_.n[j];
      }
      sums[r] = static_cast<std::int32_t>(2 * static_cast<std::int64_t>(sum) - centre_);
    }
    for (std::size_t i = 0; i < kBlockVectors; ++i) dots[0][i] = hn::Load(IntTag(), sums + i * kLanes);
  }

 private:
  CodeContext context_;
  std::size_t width_;
  std::int32_t centre_;
};

#elif !TOPKSOFTMAX_TARGET_HAS_AVX3_DL

/// A word holds coordinates 4s + i and 4s + i + 1 of a group, s < 8/bits, i = 0 in even words and 2 in odd
/// ones: those of the first kind in its lower half.
template <std::size_t kBits>
class CodeProducts<WordProducts, kBits> {
  using Layout = CodeLayout<kBits>;

 public:
  static constexpr std::size_t kTogether = 1;

  CodeProducts(const CodeContext& context, std::size_t width)
      : shifts_(context.shifts),
        segments_(width / CodeContext::kSegment),
        centre_(Layout::Centre(context, width)) {
    // Those that lie as far from a word's lowest bit are neighbours: 0, 2, 4, …, 1, 3, 5, ….
    constexpr std::size_t half = Layout::kInGroup / 2;
    for (std::size_t j = 0; j < width; ++j) {
      const std::size_t at = j % Layout::kInGroup;
      n_[j] = context.n[j - at + at % half * 2 + at / half];
    }
  }

  template <class Read>
  HWY_INLINE void operator()(const std::uint8_t* const (&blocks)[1], IntVec (&dots)[1][kBlockVectors],
                             const Read& read) const {
    const std::uint8_t* u = blocks[0];
    hn::Vec<Tag32> acc[kBlockVectors];
    hn::Vec<Tag32> more[kBlockVectors];  // where NEON adds half of the products
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kBlockVectors; ++i) acc[i] = more[i] = hn::Zero(Tag32());
    const std::int16_t* n = n_;
    for (std::size_t segment = 0; segment < segments_; ++segment) {
      if (const int shift = shifts_[segment]; shift != 0) {
        TOPKSOFTMAX_UNROLL
        for (std::size_t i = 0; i < kBlockVectors; ++i) {
          acc[i] = hn::ShiftLeftSame(acc[i], shift);
          more[i] = hn::ShiftLeftSame(more[i], shift);
        }
      }
      for (std::size_t g = 0; g < Layout::kGroups; ++g, n += Layout::kInGroup, u += Layout::kGroupBytes) {
        read(u);
        TOPKSOFTMAX_UNROLL
        for (std::size_t i = 0; i < kBlockVectors; ++i) {
          const auto words =
              hn::BitCast(TagU16(), hn::LoadU(hn::Repartition<std::uint8_t, Tag32>(), u + 4 * i * kLanes));
          TOPKSOFTMAX_UNROLL
          for (std::size_t s = 0; s < 2 * Layout::kInByte; ++s) {
            const auto codes = hn::And(hn::ShiftRightSame(words, static_cast<int>(kBits * s)),
                                       hn::Set(TagU16(), Layout::kLargest));
            acc[i] = hn::ReorderWidenMulAccumulate(Tag32(), hn::BitCast(Tag16(), codes),
                                                   WordProducts::Broadcast(n + 2 * s), acc[i], more[i]);
          }
        }
      }
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kBlockVectors; ++i) {
      const auto doubled = hn::ShiftLeft<1>(hn::RearrangeToOddPlusEven(acc[i], more[i]));
      dots[0][i] = hn::Sub(doubled, hn::Set(Tag32(), centre_));
    }
  }

 private:
  using Tag32 = WordProducts::Tag32;
  using Tag16 = WordProducts::Tag16;
  using TagU16 = WordProducts::TagU16;

  const std::uint8_t* shifts_;
  std::size_t segments_;
  std::int32_t centre_;
  std::int16_t n_[kMaxWidth];
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
