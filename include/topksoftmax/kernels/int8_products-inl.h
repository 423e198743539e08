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
#include "topksoftmax/kernels/targets.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kBlockRows = PrefixBlocks::kRows;
/// Vectors that have a number for each of them.
constexpr std::size_t kBlockVectors = kBlockRows / kLanes;

// Forms of products: Σ_j q_rj · n_j for the 16 rows of a block, in exact integers in the lanes of dots
// [kBlockVectors], so that every form gives the same. Rows hold q + 128 without a sign, so 128·Σn is taken
// off. A form's Context is what it makes of n. With(context, width, body) calls body with the products, a
// function of q and dots, which is small enough to be given by value.

#if TOPKSOFTMAX_TARGET_HAS_AVX3_DL || HWY_TARGET == HWY_AVX2

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
  struct Context {
    Context(const std::int16_t* n, std::size_t width) : start(-128 * SplitShorts(n, width, high, low)) {}

    std::int8_t high[kMaxWidth];
    std::int8_t low[kMaxWidth];
    std::int32_t start;
  };

  /// Prefixes of usual widths keep the context's coordinates in registers.
  template <class Body>
  static HWY_INLINE void With(const Context& context, std::size_t width, const Body& body) {
    switch (width) {
      case 8:
        return body(Narrow<2>(context, width));
      case 16:
        return body(Narrow<4>(context, width));
      case 24:
        return body(Narrow<6>(context, width));
      case 32:
        return body(Narrow<8>(context, width));
      default:
        return body(Wide(context, width));
    }
  }

  using Tag32 = hn::ScalableTag<std::int32_t>;
  using TagU8 = hn::Repartition<std::uint8_t, Tag32>;
  using Vec32 = hn::Vec<Tag32>;

  /// sum[i] += the four products of bytes 4i … 4i+3, of rows without and n with a sign. Highway 1.0.3 enables
  /// the intrinsic for no target, although every processor of AVX3_DL has the instruction.
  static HWY_INLINE Vec32 AddByteProducts(Vec32 sum, hn::Vec<TagU8> rows, Vec32 n) {
#if TOPKSOFTMAX_TARGET_HAS_AVX3_DL
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
  /// Sums of the products of a block, in chains of which each waits for itself.
  template <std::size_t kChains>
  class Sums {
   public:
    explicit HWY_INLINE Sums(std::int32_t start) {
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < kChains * kBlockVectors; ++i) {
        high_[i] = hn::Zero(Tag32());
        low_[i] = hn::Set(Tag32(), i < kBlockVectors ? start : 0);
      }
    }

    /// Adds the products of four coordinates to a chain.
    HWY_INLINE void Add(const std::uint8_t* q, Vec32 n_high, Vec32 n_low, std::size_t chain) {
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < kBlockVectors; ++i) {
        const auto rows = hn::LoadU(TagU8(), q + 4 * i * kLanes);
        Vec32& high = high_[chain * kBlockVectors + i];
        Vec32& low = low_[chain * kBlockVectors + i];
        high = AddByteProducts(high, rows, n_high);
        low = AddByteProducts(low, rows, n_low);
      }
    }

    HWY_INLINE void Total(IntVec* HWY_RESTRICT dots) const {
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < kBlockVectors; ++i) {
        Vec32 high = high_[i];
        Vec32 low = low_[i];
        TOPKSOFTMAX_UNROLL
        for (std::size_t chain = 1; chain < kChains; ++chain) {
          high = hn::Add(high, high_[chain * kBlockVectors + i]);
          low = hn::Add(low, low_[chain * kBlockVectors + i]);
        }
        dots[i] = hn::Add(hn::ShiftLeft<7>(high), low);
      }
    }

   private:
    Vec32 high_[kChains * kBlockVectors];
    Vec32 low_[kChains * kBlockVectors];
  };

  /// Of 4·kGroups coordinates.
  template <std::size_t kGroups>
  class Narrow {
   public:
    Narrow(const Context& context, std::size_t /*width*/) : start_(context.start) {
      for (std::size_t g = 0; g < kGroups; ++g) {
        high_[g] = Broadcast(context.high + 4 * g);
        low_[g] = Broadcast(context.low + 4 * g);
      }
    }

    HWY_INLINE void operator()(const std::uint8_t* q, IntVec* HWY_RESTRICT dots) const {
      Sums<1> sums(start_);
      TOPKSOFTMAX_UNROLL
      for (std::size_t g = 0; g < kGroups; ++g) {
        sums.Add(q + 4 * g * kBlockRows, high_[g], low_[g], 0);
      }
      sums.Total(dots);
    }

   private:
    std::int32_t start_;
    Vec32 high_[kGroups];
    Vec32 low_[kGroups];
  };

  /// Of any number of coordinates, which are loaded again for every block.
  class Wide {
   public:
    Wide(const Context& context, std::size_t width)
        : groups_(width / 4), start_(context.start), high_(context.high), low_(context.low) {}

    HWY_INLINE void operator()(const std::uint8_t* q, IntVec* HWY_RESTRICT dots) const {
      // A block has too many groups for the next block's sums to be begun meanwhile.
      constexpr std::size_t chains = 2 / kBlockVectors;
      Sums<chains> sums(start_);
      const auto add = [&](std::size_t g, std::size_t chain) HWY_ATTR {
        sums.Add(q + 4 * g * kBlockRows, Broadcast(high_ + 4 * g), Broadcast(low_ + 4 * g), chain);
      };
      std::size_t g = 0;
      for (; g + chains <= groups_; g += chains) {
        TOPKSOFTMAX_UNROLL
        for (std::size_t chain = 0; chain < chains; ++chain) add(g + chain, chain);
      }
      for (; g < groups_; ++g) add(g, 0);
      sums.Total(dots);
    }

   private:
    std::size_t groups_;
    std::int32_t start_;
    const std::int8_t* high_;
    const std::int8_t* low_;
  };
};

#endif

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR

/// The plain form.
class PlainProducts {
 public:
  struct Context {
    Context(const std::int16_t* shorts, std::size_t /*width*/) : n(shorts) {}

    const std::int16_t* n;
  };

  PlainProducts(const Context& context, std::size_t width) : n_(context.n), width_(width) {}

  HWY_INLINE void operator()(const std::uint8_t* q, IntVec* HWY_RESTRICT dots) const {
    HWY_ALIGN std::int32_t sums[kBlockRows];
    for (std::size_t r = 0; r < kBlockRows; ++r) {
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < width_; ++j) {
        const int weight = static_cast<int>(q[j / 4 * 64 + r * 4 + j % 4]) - 128;
        sum += weight * n_[j];
      }
      sums[r] = sum;
    }
    for (std::size_t i = 0; i < kBlockVectors; ++i) dots[i] = hn::Load(IntTag(), sums + i * kLanes);
  }

  template <class Body>
  static HWY_INLINE void With(const Context& context, std::size_t width, const Body& body) {
    body(PlainProducts(context, width));
  }

 private:
  const std::int16_t* n_;
  std::size_t width_;
};

using Products = PlainProducts;

#elif TOPKSOFTMAX_TARGET_HAS_AVX3_DL

using Products = ByteProducts;

#else

/// 16-bit products, added in pairs: of a row's coordinates 0 and 2, and of 1 and 3. So no byte is moved to
/// widen it, and every 32-bit lane belongs to one row.
class WordProducts {
 public:
  struct Context {
    Context(const std::int16_t* n, std::size_t width) {
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < width; ++j) {
        sum += n[j];
        (j % 2 == 0 ? even : odd)[j / 2] = n[j];
      }
      start = -128 * sum;
    }

    std::int32_t start;
    std::int16_t even[kMaxWidth / 2];
    std::int16_t odd[kMaxWidth / 2];
  };

  WordProducts(const Context& context, std::size_t width)
      : groups_(width / 4), start_(context.start), even_(context.even), odd_(context.odd) {}

  HWY_INLINE void operator()(const std::uint8_t* q, IntVec* HWY_RESTRICT dots) const {
    hn::Vec<Tag32> acc[kBlockVectors];
    hn::Vec<Tag32> more[kBlockVectors];  // where NEON adds half of the products
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kBlockVectors; ++i) acc[i] = more[i] = hn::Zero(Tag32());
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto even = Broadcast(even_ + 2 * g);
      const auto odd = Broadcast(odd_ + 2 * g);
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < kBlockVectors; ++i) {
        const auto rows = hn::BitCast(TagU16(), hn::LoadU(hn::Repartition<std::uint8_t, Tag32>(),
                                                          q + 4 * (g * kBlockRows + i * kLanes)));
        const auto low = hn::BitCast(Tag16(), hn::And(rows, hn::Set(TagU16(), 0xFF)));
        const auto high = hn::BitCast(Tag16(), hn::ShiftRight<8>(rows));
        acc[i] = hn::ReorderWidenMulAccumulate(Tag32(), low, even, acc[i], more[i]);
        acc[i] = hn::ReorderWidenMulAccumulate(Tag32(), high, odd, acc[i], more[i]);
      }
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < kBlockVectors; ++i) {
      const auto products = hn::RearrangeToOddPlusEven(acc[i], more[i]);
      dots[i] = hn::Add(products, hn::Set(Tag32(), start_));
    }
  }

  template <class Body>
  static HWY_INLINE void With(const Context& context, std::size_t width, const Body& body) {
    body(WordProducts(context, width));
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
  const std::int16_t* even_;
  const std::int16_t* odd_;
};

using Products = WordProducts;

#endif

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
