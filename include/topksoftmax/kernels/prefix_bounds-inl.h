// SPDX-License-Identifier: Apache-2.0
//
// Estimates of all logits from int8 prefixes, with the radius that the real ones lie in.
// Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_PREFIX_BOUNDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_PREFIX_BOUNDS_INL_H_
#undef TOPKSOFTMAX_KERNELS_PREFIX_BOUNDS_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_PREFIX_BOUNDS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kBlockRows = PrefixBlocks::kRows;

// Forms of products: dots[r] = Σ_j q_rj · n_j for the 16 rows of a block, in exact integers, so that every
// form gives the same. Rows hold q + 128 without a sign, so 128·Σn is taken off. With(n, width, body) calls
// body with the products of n, a function of q and dots. Int4 is such a function of u and dots[r] =
// Σ_j (2·u_rj − 15) · n_j; sums are modulo 2³², and what they end as is an int32.

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

/// By VNNI. Two byte products make a 15-bit one: n = 128·high + low.
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

 private:
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

  /// kGroups > 0: for prefixes of 4·kGroups, in registers; 0: coordinates are read again for every block.
  template <std::size_t kGroups>
  class Dots {
   public:
    Dots(const std::int16_t* n, std::size_t width) : groups_(width / 4) {
      std::int32_t high_sum = 0;
      std::int32_t low_sum = 0;
      for (std::size_t j = 0; j < width; ++j) {
        const int high = (n[j] + 64) >> 7;
        const int low = n[j] - 128 * high;
        high_[j] = static_cast<std::int8_t>(high);
        low_[j] = static_cast<std::int8_t>(low);
        high_sum += high;
        low_sum += low;
      }
      high_start_ = -128 * high_sum;
      low_start_ = -128 * low_sum;
      for (std::size_t g = 0; g < kGroups; ++g) {
        high_groups_[g] = Broadcast(high_ + 4 * g);
        low_groups_[g] = Broadcast(low_ + 4 * g);
      }
    }

    HWY_INLINE void operator()(const std::uint8_t* q, std::int32_t* HWY_RESTRICT dots) const {
      Vec32 high[kParts];
      Vec32 low[kParts];
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < kParts; ++i) {
        high[i] = hn::Set(Tag32(), high_start_);
        low[i] = hn::Set(Tag32(), low_start_);
      }
      const auto add = [&](std::size_t g, Vec32 n_high, Vec32 n_low) HWY_ATTR {
        TOPKSOFTMAX_UNROLL
        for (std::size_t i = 0; i < kParts; ++i) {
          const auto rows = hn::LoadU(TagU8(), q + 4 * (g * kBlockRows + i * kRows));
          high[i] = AddByteProducts(high[i], rows, n_high);
          low[i] = AddByteProducts(low[i], rows, n_low);
        }
      };
      if constexpr (kGroups > 0) {
        TOPKSOFTMAX_UNROLL
        for (std::size_t g = 0; g < kGroups; ++g) add(g, high_groups_[g], low_groups_[g]);
      } else {
        for (std::size_t g = 0; g < groups_; ++g) add(g, Broadcast(high_ + 4 * g), Broadcast(low_ + 4 * g));
      }
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < kParts; ++i) {
        hn::Store(hn::Add(hn::ShiftLeft<7>(high[i]), low[i]), Tag32(), dots + i * kRows);
      }
    }

   private:
    static constexpr std::size_t kRows = hn::MaxLanes(Tag32());
    static constexpr std::size_t kParts = kBlockRows / kRows;

    std::size_t groups_;
    std::int32_t high_start_;
    std::int32_t low_start_;
    std::int8_t high_[PrefixBlocks::kMaxWidth];
    std::int8_t low_[PrefixBlocks::kMaxWidth];
    Vec32 high_groups_[kGroups > 0 ? kGroups : 1];
    Vec32 low_groups_[kGroups > 0 ? kGroups : 1];
  };

 public:
  class Int4 {
   public:
    Int4(const Int4Context& context, std::size_t width)
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
          const Vec32 lower_n = Broadcast(n);
          const Vec32 upper_n = Broadcast(n + 4);
          TOPKSOFTMAX_UNROLL
          for (std::size_t i = 0; i < kParts; ++i) {
            auto pairs = hn::LoadU(TagU8(), u + g * kInt4GroupBytes + 4 * i * kRows);
            HoldInRegister(pairs);
            Vec32* const chain = acc + g % kChainsOfInt4 * 2 * kParts + i;
            chain[0] = AddByteProducts(chain[0], hn::And(pairs, hn::Set(TagU8(), 0x0f)), lower_n);
            chain[kParts] = AddByteProducts(chain[kParts], hn::And(pairs, hn::Set(TagU8(), 0xf0)), upper_n);
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
};

#endif

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR

/// The plain form.
class PlainProducts {
 public:
  PlainProducts(const std::int16_t* n, std::size_t width) : n_(n), width_(width) {}

  HWY_INLINE void operator()(const std::uint8_t* q, std::int32_t* HWY_RESTRICT dots) const {
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

  class Int4 {
   public:
    Int4(const Int4Context& context, std::size_t width)
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

  HWY_INLINE void operator()(const std::uint8_t* q, std::int32_t* HWY_RESTRICT dots) const {
    constexpr std::size_t lanes = hn::MaxLanes(Tag32());
    constexpr std::size_t parts = kBlockRows / lanes;
    hn::Vec<Tag32> acc[parts];
    hn::Vec<Tag32> more[parts];  // where NEON adds half of the products
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < parts; ++i) acc[i] = more[i] = hn::Zero(Tag32());
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto even = Broadcast(even_ + 2 * g);
      const auto odd = Broadcast(odd_ + 2 * g);
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

 private:
  using Tag32 = hn::ScalableTag<std::int32_t>;
  using Tag16 = hn::Repartition<std::int16_t, Tag32>;
  using TagU16 = hn::Repartition<std::uint16_t, Tag32>;

 public:
  /// A word holds coordinates i, 4 + i, 1 + i and 5 + i of eight, i = 0 in even words and 2 in odd ones, from
  /// its lowest bits on.
  class Int4 {
   public:
    Int4(const Int4Context& context, std::size_t width)
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
    template <class V>
    static HWY_INLINE void Add(V words, const std::int16_t* two, hn::Vec<Tag32>& acc, hn::Vec<Tag32>& more) {
      const auto u = hn::BitCast(Tag16(), hn::And(words, hn::Set(TagU16(), 0x0f)));
      acc = hn::ReorderWidenMulAccumulate(Tag32(), u, Broadcast(two), acc, more);
    }

    const std::uint8_t* shifts_;
    std::size_t segments_;
    std::int32_t centre_;
    std::int16_t n_[PrefixBlocks::kMaxWidth];
  };

 private:
  static HWY_INLINE hn::Vec<Tag16> Broadcast(const std::int16_t* two) {
    std::int32_t word;
    std::memcpy(&word, two, sizeof(word));
    return hn::BitCast(Tag16(), hn::Set(Tag32(), word));
  }

  std::size_t groups_;
  std::int32_t start_;
  std::int16_t even_[PrefixBlocks::kMaxWidth / 2];
  std::int16_t odd_[PrefixBlocks::kMaxWidth / 2];
};

using Products = WordProducts;

#endif

/// Where a block's parts begin.
struct BlockHeader {
  const float* bias;
  const hwy::bfloat16_t* scale;
  const hwy::bfloat16_t* radius;
  const std::uint8_t* q;
  // Where rows have such coordinates:
  const hwy::bfloat16_t* int4_scale;
  const hwy::bfloat16_t* int4_radius;
  const std::uint8_t* u;
};

HWY_INLINE BlockHeader HeaderOf(const PrefixBlocks& blocks, std::size_t block) {
  const std::byte* const data = blocks.data + block * blocks.block_bytes();
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(data);
  const auto* const bias = reinterpret_cast<const float*>(data);
  const auto* const scale = reinterpret_cast<const hwy::bfloat16_t*>(bias + kBlockRows);
  return {bias,
          scale,
          scale + kBlockRows,
          bytes + blocks.q_offset(),
          scale + 2 * kBlockRows,
          scale + 3 * kBlockRows,
          bytes + blocks.int4_offset()};
}

/// What every row's bounds have of the context.
struct ContextFactors {
  explicit ContextFactors(const PrefixContext& context)
      : scale(hn::Set(FloatTag(), context.scale)), radius(hn::Set(FloatTag(), context.radius)) {}

  /// scale·context.scale of kLanes rows.
  HWY_INLINE FloatVec Scale(const hwy::bfloat16_t* scales) const { return hn::Mul(Promoted(scales), scale); }

  /// radius·context.radius of kLanes rows, and the rounding of numbers as large as `sizes`.
  HWY_INLINE FloatVec Radius(const hwy::bfloat16_t* radii, FloatVec sizes) const {
    const FloatTag d;
    return hn::MulAdd(sizes, hn::Set(d, PrefixBlocks::kRounding),
                      hn::MulAdd(Promoted(radii), radius, hn::Set(d, PrefixBlocks::kSmallest)));
  }

  FloatVec scale;
  FloatVec radius;

  static HWY_INLINE FloatVec Promoted(const hwy::bfloat16_t* values) {
    const FloatTag d;
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, FloatTag>(), values));
  }
};

/// The kLanes sums of products at dots, as floats.
HWY_INLINE FloatVec ToFloats(const std::int32_t* dots) {
  const FloatTag d;
  return hn::ConvertTo(d, hn::Load(hn::Rebind<std::int32_t, FloatTag>(), dots));
}

/// Bounds of the blocks that block_of names, one after the other, by int8 coordinates alone.
template <class Form, class BlockOf>
HWY_INLINE void BoundByInt8(const PrefixBlocks& prefix, const BlockOf& block_of, std::size_t count,
                            const PrefixContext& context, float* HWY_RESTRICT estimates,
                            float* HWY_RESTRICT radii) {
  Form::With(context.n, prefix.width, [&](const auto& block_dots) HWY_ATTR {
    const FloatTag d;
    const ContextFactors factors(context);
    HWY_ALIGN std::int32_t dots[kBlockRows];
    for (std::size_t i = 0; i < count; ++i) {
      const BlockHeader header = HeaderOf(prefix, block_of(i));
      block_dots(header.q, dots);
      for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
        const auto estimate =
            hn::MulAdd(ToFloats(dots + r), factors.Scale(header.scale + r), hn::LoadU(d, header.bias + r));
        hn::StoreU(estimate, d, estimates + i * kBlockRows + r);
        hn::StoreU(factors.Radius(header.radius + r, hn::Abs(estimate)), d, radii + i * kBlockRows + r);
      }
    }
  });
}

/// The same by int8 and int4 coordinates.
template <class Form, class BlockOf>
HWY_INLINE void BoundByInt8AndInt4(const PrefixBlocks& prefix, const BlockOf& block_of, std::size_t count,
                                   const PrefixContext& context, float* HWY_RESTRICT estimates,
                                   float* HWY_RESTRICT radii) {
  const typename Form::Int4 int4_dots(context.int4, prefix.int4_width);
  Form::With(context.n, prefix.width, [&](const auto& block_dots) HWY_ATTR {
    const FloatTag d;
    const ContextFactors factors(context);
    const auto int4_scale = hn::Set(d, context.int4.scale);
    const auto int4_radius = hn::Set(d, context.int4.radius);
    HWY_ALIGN std::int32_t dots[kBlockRows];
    HWY_ALIGN std::int32_t more[kBlockRows];
    for (std::size_t i = 0; i < count; ++i) {
      const BlockHeader header = HeaderOf(prefix, block_of(i));
      block_dots(header.q, dots);
      int4_dots(header.u, more);
      for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
        const auto first =
            hn::MulAdd(ToFloats(dots + r), factors.Scale(header.scale + r), hn::LoadU(d, header.bias + r));
        const auto second =
            hn::Mul(ToFloats(more + r), hn::Mul(ContextFactors::Promoted(header.int4_scale + r), int4_scale));
        const auto sizes = hn::Add(hn::Abs(first), hn::Abs(second));
        const auto radius = hn::MulAdd(ContextFactors::Promoted(header.int4_radius + r), int4_radius,
                                       factors.Radius(header.radius + r, sizes));
        hn::StoreU(hn::Add(first, second), d, estimates + i * kBlockRows + r);
        hn::StoreU(radius, d, radii + i * kBlockRows + r);
      }
    }
  });
}

template <class Form, class BlockOf>
HWY_INLINE void BoundBlocks(const PrefixBlocks& prefix, const BlockOf& block_of, std::size_t count,
                            const PrefixContext& context, float* HWY_RESTRICT estimates,
                            float* HWY_RESTRICT radii) {
  if (prefix.int4_width == 0) {
    BoundByInt8<Form>(prefix, block_of, count, context, estimates, radii);
  } else {
    BoundByInt8AndInt4<Form>(prefix, block_of, count, context, estimates, radii);
  }
}

template <class Form>
void PrefixBounds(const PrefixBlocks& prefix, const PrefixContext& context, float* estimates, float* radii) {
  BoundBlocks<Form>(
      prefix, [](std::size_t i) { return i; }, prefix.blocks(), context, estimates, radii);
}

template <class Form>
void PrefixBoundsGathered(const PrefixBlocks& prefix, const TokenId* blocks, std::size_t count,
                          const PrefixContext& context, float* estimates, float* radii) {
  BoundBlocks<Form>(
      prefix, [blocks](std::size_t i) { return static_cast<std::size_t>(blocks[i]); }, count, context,
      estimates, radii);
}

template <class Form>
void BoxBounds(const PrefixBoxes& boxes, const PrefixContext& context, const std::int16_t* magnitudes,
               float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  Form::With(context.n, boxes.centres.width, [&](const auto& centre_dots) HWY_ATTR {
    const std::remove_cvref_t<decltype(centre_dots)> spread_dots(magnitudes, boxes.spreads.width);
    const FloatTag d;
    const ContextFactors factors(context);
    HWY_ALIGN std::int32_t centre[kBlockRows];
    HWY_ALIGN std::int32_t spread[kBlockRows];
    for (std::size_t block = 0; block < boxes.centres.blocks(); ++block) {
      const BlockHeader centres = HeaderOf(boxes.centres, block);
      const BlockHeader spreads = HeaderOf(boxes.spreads, block);
      centre_dots(centres.q, centre);
      spread_dots(spreads.q, spread);
      for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
        const auto bias = hn::LoadU(d, centres.bias + r);
        const auto middle = hn::Mul(ToFloats(centre + r), factors.Scale(centres.scale + r));
        const auto half = hn::Mul(ToFloats(spread + r), factors.Scale(spreads.scale + r));
        const auto sizes = hn::Add(hn::Add(hn::Abs(middle), hn::Abs(bias)), half);
        const auto radius = factors.Radius(centres.radius + r, sizes);
        hn::StoreU(hn::Add(middle, bias), d, estimates + block * kBlockRows + r);
        hn::StoreU(hn::Add(radius, half), d, radii + block * kBlockRows + r);
      }
    }
  });
}

inline void TailBounds(const PrefixTails& tails, const TailContext& context, const TokenId* HWY_RESTRICT ids,
                       std::size_t count, float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  using Lane = Stored<WeightType::int8>::Lane;
  const std::size_t row_bytes = tails.row_bytes();
  const auto row_of = [&](std::size_t i) {
    return reinterpret_cast<const Lane*>(tails.row(static_cast<std::size_t>(ids[i])));
  };
  for (std::size_t i = 0; i < std::min(count, kTile); ++i) hwy::Prefetch(row_of(i));
  HWY_ALIGN float dots[kTile];
  for (std::size_t first = 0; first < count; first += kTile) {
    const std::size_t size = std::min(kTile, count - first);
    for (std::size_t i = first + kTile; i < std::min(count, first + 2 * kTile); ++i) hwy::Prefetch(row_of(i));
    const Lane* rows[kTile + kChains];
    for (std::size_t r = 0; r < kTile + kChains; ++r) rows[r] = row_of(std::min(first + r, count - 1));
    // Zeros of h meet what is not a coordinate. The first lines have been asked for; most tails have no more.
    if (tails.lines() == 1) {
      DotTile<WeightType::int8>(rows, NothingNext(), row_bytes, context.h, dots);
    } else {
      DotTile<WeightType::int8>(rows, RowsNext<Lane>{rows + kChains}, row_bytes, context.h, dots);
    }
    for (std::size_t r = 0; r < size; ++r) {
      const PrefixTails::Footer footer = tails.footer(rows[r]);
      const float before = estimates[first + r];
      const float behind = footer.scale * dots[r];
      estimates[first + r] = before + behind;
      radii[first + r] = footer.radius * context.radius + PrefixBlocks::kSmallest +
                         PrefixBlocks::kRounding * (std::abs(before) + std::abs(behind));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
