// SPDX-License-Identifier: Apache-2.0
//
// Products of the int8 coordinates of rows with contexts. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_INT8_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_INT8_PRODUCTS_INL_H_
#undef TOPKSOFTMAX_KERNELS_INT8_PRODUCTS_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_INT8_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kBlockRows = PrefixBlocks::kRows;

// Forms of products: dots[r] = Σ_j q_rj · n_j for the 16 rows of a block, in exact integers, so that every
// form gives the same. Rows hold q + 128 without a sign, so 128·Σn is taken off. With(n, width, body) calls
// body with the products of n, a function of q, next and dots, which calls next with each line that it reads.

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX2

/// n_j = 128·high_j + low_j, for two byte products that make a 15-bit one. Returns Σ n_j.
inline std::int32_t SplitShorts(const std::int16_t* HWY_RESTRICT n, std::size_t count,
                                std::int8_t* HWY_RESTRICT high, std::int8_t* HWY_RESTRICT low) {
  std::int32_t sum = 0;
  for (std::size_t j = 0; j < count; ++j) {
    const int rounded = (n[j] + 64) >> 7;
    high[j] = static_cast<std::int8_t>(rounded);
    low[j] = static_cast<std::int8_t>(n[j] - 128 * rounded);
    sum += n[j];
  }
  return sum;
}

/// By VNNI: n = 128·high + low.
class ByteProducts {
 public:
  /// Prefixes of usual widths keep the context's coordinates in registers.
  template <class Body>
  static HWY_INLINE void With(const std::int16_t* n, std::size_t width, const Body& body) {
    switch (width) {
      case 8:
        return body(Dots<2>(n, width));
      case 16:
        return body(Dots<4>(n, width));
      case 24:
        return body(Dots<6>(n, width));
      case 32:
        return body(Dots<8>(n, width));
      default:
        return body(Dots<0>(n, width));
    }
  }

  using Tag32 = hn::ScalableTag<std::int32_t>;
  using TagU8 = hn::Repartition<std::uint8_t, Tag32>;
  using Vec32 = hn::Vec<Tag32>;

  /// sum[i] += the four products of bytes 4i … 4i+3, of rows without and n with a sign. Highway 1.0.3 enables
  /// the intrinsic for no target, although every processor of AVX3_DL has the instruction.
  static HWY_INLINE Vec32 AddByteProducts(Vec32 sum, hn::Vec<TagU8> rows, Vec32 n) {
#if HWY_TARGET == HWY_AVX3_DL
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(rows.raw), "v"(n.raw));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(rows.raw), "x"(n.raw));
#endif
    return sum;
  }

  static HWY_INLINE Vec32 Broadcast(const std::int8_t* four) {
    std::int32_t word;
    std::memcpy(&word, four, sizeof(word));
    return hn::Set(Tag32(), word);
  }

 private:
  /// kGroups > 0: for prefixes of 4·kGroups, in registers; 0: coordinates are read again for every block.
  template <std::size_t kGroups>
  class Dots {
   public:
    Dots(const std::int16_t* n, std::size_t width)
        : groups_(width / 4), start_(-128 * SplitShorts(n, width, high_, low_)) {
      for (std::size_t g = 0; g < kGroups; ++g) {
        high_groups_[g] = Broadcast(high_ + 4 * g);
        low_groups_[g] = Broadcast(low_ + 4 * g);
      }
    }

    template <class Next>
    HWY_INLINE void operator()(const std::uint8_t* q, const Next& next,
                               std::int32_t* HWY_RESTRICT dots) const {
      Vec32 high[kChains * kParts];
      Vec32 low[kChains * kParts];
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < kChains * kParts; ++i) {
        high[i] = hn::Zero(Tag32());
        low[i] = hn::Set(Tag32(), i < kParts ? start_ : 0);
      }
      const auto add = [&](std::size_t g, std::size_t chain, Vec32 n_high, Vec32 n_low) HWY_ATTR {
        next(q + 4 * g * kBlockRows);
        TOPKSOFTMAX_UNROLL
        for (std::size_t i = chain * kParts; i < (chain + 1) * kParts; ++i) {
          const auto rows = hn::LoadU(TagU8(), q + 4 * (g * kBlockRows + i % kParts * kRows));
          high[i] = AddByteProducts(high[i], rows, n_high);
          low[i] = AddByteProducts(low[i], rows, n_low);
        }
      };
      if constexpr (kGroups > 0) {
        TOPKSOFTMAX_UNROLL
        for (std::size_t g = 0; g < kGroups; ++g) add(g, 0, high_groups_[g], low_groups_[g]);
      } else {
        const auto add_read = [&](std::size_t g, std::size_t chain) HWY_ATTR {
          add(g, chain, Broadcast(high_ + 4 * g), Broadcast(low_ + 4 * g));
        };
        std::size_t g = 0;
        for (; g + kChains <= groups_; g += kChains) {
          TOPKSOFTMAX_UNROLL
          for (std::size_t chain = 0; chain < kChains; ++chain) add_read(g + chain, chain);
        }
        for (; g < groups_; ++g) add_read(g, 0);
      }
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = kParts; i < kChains * kParts; ++i) {
        high[i % kParts] = hn::Add(high[i % kParts], high[i]);
        low[i % kParts] = hn::Add(low[i % kParts], low[i]);
      }
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < kParts; ++i) {
        hn::Store(hn::Add(hn::ShiftLeft<7>(high[i]), low[i]), Tag32(), dots + i * kRows);
      }
    }

   private:
    static constexpr std::size_t kRows = hn::MaxLanes(Tag32());
    static constexpr std::size_t kParts = kBlockRows / kRows;
    /// Enough sums, of which each waits for itself, where a block has too many groups for the next block's to
    /// be begun meanwhile.
    static constexpr std::size_t kChains = kGroups > 0 ? 1 : 2 / kParts;

    std::size_t groups_;
    std::int8_t high_[PrefixBlocks::kMaxWidth];
    std::int8_t low_[PrefixBlocks::kMaxWidth];
    std::int32_t start_;
    Vec32 high_groups_[kGroups > 0 ? kGroups : 1];
    Vec32 low_groups_[kGroups > 0 ? kGroups : 1];
  };
};

#endif

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR

/// The plain form.
class PlainProducts {
 public:
  PlainProducts(const std::int16_t* n, std::size_t width) : n_(n), width_(width) {}

  template <class Next>
  HWY_INLINE void operator()(const std::uint8_t* q, const Next& /*next*/,
                             std::int32_t* HWY_RESTRICT dots) const {
    for (std::size_t r = 0; r < kBlockRows; ++r) {
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < width_; ++j) {
        const int weight = static_cast<int>(q[j / 4 * 64 + r * 4 + j % 4]) - 128;
        sum += weight * n_[j];
      }
      dots[r] = sum;
    }
  }

  template <class Body>
  static HWY_INLINE void With(const std::int16_t* n, std::size_t width, const Body& body) {
    body(PlainProducts(n, width));
  }

 private:
  const std::int16_t* n_;
  std::size_t width_;
};

using Products = PlainProducts;

#elif HWY_TARGET == HWY_AVX3_DL

using Products = ByteProducts;

#else

/// 16-bit products, added in pairs: of a row's coordinates 0 and 2, and of 1 and 3. So no byte is moved to
/// widen it, and every 32-bit lane belongs to one row.
class WordProducts {
 public:
  WordProducts(const std::int16_t* n, std::size_t width) : groups_(width / 4) {
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < width; ++j) {
      sum += n[j];
      (j % 2 == 0 ? even_ : odd_)[j / 2] = n[j];
    }
    start_ = -128 * sum;
  }

  template <class Next>
  HWY_INLINE void operator()(const std::uint8_t* q, const Next& next, std::int32_t* HWY_RESTRICT dots) const {
    constexpr std::size_t lanes = hn::MaxLanes(Tag32());
    constexpr std::size_t parts = kBlockRows / lanes;
    hn::Vec<Tag32> acc[parts];
    hn::Vec<Tag32> more[parts];  // where NEON adds half of the products
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < parts; ++i) acc[i] = more[i] = hn::Zero(Tag32());
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto even = Broadcast(even_ + 2 * g);
      const auto odd = Broadcast(odd_ + 2 * g);
      next(q + 4 * g * kBlockRows);
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < parts; ++i) {
        const auto rows = hn::BitCast(TagU16(), hn::LoadU(hn::Repartition<std::uint8_t, Tag32>(),
                                                          q + 4 * (g * kBlockRows + i * lanes)));
        const auto low = hn::BitCast(Tag16(), hn::And(rows, hn::Set(TagU16(), 0xFF)));
        const auto high = hn::BitCast(Tag16(), hn::ShiftRight<8>(rows));
        acc[i] = hn::ReorderWidenMulAccumulate(Tag32(), low, even, acc[i], more[i]);
        acc[i] = hn::ReorderWidenMulAccumulate(Tag32(), high, odd, acc[i], more[i]);
      }
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < parts; ++i) {
      const auto products = hn::RearrangeToOddPlusEven(acc[i], more[i]);
      hn::Store(hn::Add(products, hn::Set(Tag32(), start_)), Tag32(), dots + i * lanes);
    }
  }

  template <class Body>
  static HWY_INLINE void With(const std::int16_t* n, std::size_t width, const Body& body) {
    body(WordProducts(n, width));
  }

  using Tag32 = hn::ScalableTag<std::int32_t>;
  using Tag16 = hn::Repartition<std::int16_t, Tag32>;
  using TagU16 = hn::Repartition<std::uint16_t, Tag32>;

  static HWY_INLINE hn::Vec<Tag16> Broadcast(const std::int16_t* two) {
    std::int32_t word;
    std::memcpy(&word, two, sizeof(word));
    return hn::BitCast(Tag16(), hn::Set(Tag32(), word));
  }

 private:
  std::size_t groups_;
  std::int32_t start_;
  std::int16_t even_[PrefixBlocks::kMaxWidth / 2];
  std::int16_t odd_[PrefixBlocks::kMaxWidth / 2];
};

using Products = WordProducts;

#endif

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
