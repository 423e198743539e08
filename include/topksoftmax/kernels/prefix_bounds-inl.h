// SPDX-License-Identifier: Apache-2.0
//
// Estimates of all logits from prefixes in int8 and codes, with the radius that the real ones lie in.
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
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/code_products-inl.h"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/int8_products-inl.h"
#include "topksoftmax/kernels/prefetch.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Where a block's parts begin.
struct BlockHeader {
  const float* bias;
  const hwy::bfloat16_t* scale;
  const hwy::bfloat16_t* radius;
  const std::uint8_t* q;
};

/// Where a block's codes of some bits begin.
struct CodeHeader {
  const hwy::bfloat16_t* scale;
  const std::uint8_t* u;
};

HWY_INLINE const hwy::bfloat16_t* Halves(const PrefixBlocks& blocks, std::size_t block, std::size_t offset) {
  return reinterpret_cast<const hwy::bfloat16_t*>(blocks.data + block * blocks.block_bytes() + offset);
}

HWY_INLINE CodeHeader HeaderOf(const PrefixBlocks& blocks, const PrefixCodes& codes, std::size_t block) {
  const std::byte* const data = blocks.data + block * blocks.block_bytes();
  return {Halves(blocks, block, codes.scale_offset),
          reinterpret_cast<const std::uint8_t*>(data + codes.offset)};
}

HWY_INLINE BlockHeader HeaderOf(const PrefixBlocks& blocks, std::size_t block) {
  const std::byte* const data = blocks.data + block * blocks.block_bytes();
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(data);
  const auto* const bias = reinterpret_cast<const float*>(data);
  const auto* const scale = reinterpret_cast<const hwy::bfloat16_t*>(bias + kBlockRows);
  return {bias, scale, scale + kBlockRows, bytes + blocks.q_offset()};
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

// What is read next is asked for while blocks are multiplied: a function of each line that is read.

/// Bytes that blocks in order are asked for ahead.
constexpr std::size_t kBlocksAhead = std::size_t{8} * 1024;

/// All blocks in order: their lines wait in the second cache.
struct BlocksInOrder {
  HWY_INLINE std::size_t operator[](std::size_t i) const { return i; }
  HWY_INLINE auto Next(std::size_t /*i*/) const {
    return [](const void* line) { prefetch_second(static_cast<const std::byte*>(line) + kBlocksAhead); };
  }

  std::size_t count;
};

/// Blocks that lie anywhere: while one is read, the next is asked for.
struct BlocksGathered {
  HWY_INLINE std::size_t operator[](std::size_t i) const { return static_cast<std::size_t>(ids[i]); }
  HWY_INLINE auto Next(std::size_t i) const {
    const std::ptrdiff_t ahead = (ids[i + 1 < count ? i + 1 : i] - ids[i]) * block_bytes;
    return [ahead](const void* line) { prefetch(static_cast<const std::byte*>(line) + ahead); };
  }

  const TokenId* ids;
  std::size_t count;
  std::ptrdiff_t block_bytes;
};

/// Asks for what comes after what stands in a block before its coordinates.
template <class Next>
HWY_INLINE void AfterHeader(const PrefixBlocks& blocks, std::size_t block, const Next& next) {
  const std::byte* const begin = blocks.data + block * blocks.block_bytes();
  for (std::size_t at = 0; at < blocks.q_offset(); at += kLine) next(begin + at);
}

/// Bounds of blocks, one after the other, by int8 coordinates alone.
template <class Form, class Blocks>
HWY_INLINE void BoundByInt8(const PrefixBlocks& prefix, const Blocks& blocks, const PrefixContext& context,
                            float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  Form::With(context.n, prefix.width, [&](const auto& block_dots) HWY_ATTR {
    const FloatTag d;
    const ContextFactors factors(context);
    HWY_ALIGN std::int32_t dots[kBlockRows];
    for (std::size_t i = 0; i < blocks.count; ++i) {
      const std::size_t block = blocks[i];
      const auto next = blocks.Next(i);
      const BlockHeader header = HeaderOf(prefix, block);
      AfterHeader(prefix, block, next);
      block_dots(header.q, next, dots);
      for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
        const auto estimate =
            hn::MulAdd(ToFloats(dots + r), factors.Scale(header.scale + r), hn::LoadU(d, header.bias + r));
        hn::StoreU(estimate, d, estimates + i * kBlockRows + r);
        hn::StoreU(factors.Radius(header.radius + r, hn::Abs(estimate)), d, radii + i * kBlockRows + r);
      }
    }
  });
}

/// What codes of some bits add to the bounds of a block's rows.
template <class Form, std::size_t kBits>
class CodeTerms {
 public:
  CodeTerms(const PrefixCodes& codes, const CodeContext& context)
      : codes_(codes), products_(context, codes.width), scale_(context.scale) {}

  /// The products of the rows of a block, in the order of its rows; zeros where there are no codes.
  template <class Next>
  HWY_INLINE void operator()(const PrefixBlocks& blocks, std::size_t block, const Next& next,
                             float* HWY_RESTRICT products) const {
    const FloatTag d;
    if (codes_.width == 0) {
      for (std::size_t r = 0; r < kBlockRows; r += kLanes) hn::Store(hn::Zero(d), d, products + r);
      return;
    }
    const CodeHeader header = HeaderOf(blocks, codes_, block);
    HWY_ALIGN std::int32_t dots[kBlockRows];
    products_(header.u, next, dots);
    for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
      const auto scale = hn::Mul(ContextFactors::Promoted(header.scale + r), hn::Set(d, scale_));
      hn::Store(hn::Mul(ToFloats(dots + r), scale), d, products + r);
    }
  }

 private:
  PrefixCodes codes_;
  CodeProducts<Form, kBits> products_;
  float scale_;
};

/// The same by int8 coordinates and codes.
template <class Form, class Blocks>
HWY_INLINE void BoundByInt8AndCodes(const PrefixBlocks& prefix, const Blocks& blocks,
                                    const PrefixContext& context, float* HWY_RESTRICT estimates,
                                    float* HWY_RESTRICT radii) {
  const CodeTerms<Form, 4> of_int4(prefix.int4(), context.int4);
  const CodeTerms<Form, 2> of_int2(prefix.int2(), context.int2);
  Form::With(context.n, prefix.width, [&](const auto& block_dots) HWY_ATTR {
    const FloatTag d;
    const ContextFactors factors(context);
    const auto code_radius = hn::Set(d, context.code_radius);
    HWY_ALIGN std::int32_t dots[kBlockRows];
    HWY_ALIGN float by_int4[kBlockRows];
    HWY_ALIGN float by_int2[kBlockRows];
    for (std::size_t i = 0; i < blocks.count; ++i) {
      const std::size_t block = blocks[i];
      const auto next = blocks.Next(i);
      const BlockHeader header = HeaderOf(prefix, block);
      const hwy::bfloat16_t* const code_radii = Halves(prefix, block, PrefixBlocks::code_radius_offset());
      AfterHeader(prefix, block, next);
      block_dots(header.q, next, dots);
      of_int4(prefix, block, next, by_int4);
      of_int2(prefix, block, next, by_int2);
      for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
        const auto first =
            hn::MulAdd(ToFloats(dots + r), factors.Scale(header.scale + r), hn::LoadU(d, header.bias + r));
        const auto second = hn::Load(d, by_int4 + r);
        const auto third = hn::Load(d, by_int2 + r);
        const auto sizes = hn::Add(hn::Abs(first), hn::Add(hn::Abs(second), hn::Abs(third)));
        const auto radius = hn::MulAdd(ContextFactors::Promoted(code_radii + r), code_radius,
                                       factors.Radius(header.radius + r, sizes));
        hn::StoreU(hn::Add(hn::Add(first, second), third), d, estimates + i * kBlockRows + r);
        hn::StoreU(radius, d, radii + i * kBlockRows + r);
      }
    }
  });
}

template <class Form, class Blocks>
HWY_INLINE void BoundBlocks(const PrefixBlocks& prefix, const Blocks& blocks, const PrefixContext& context,
                            float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  if (prefix.code_width() == 0) {
    BoundByInt8<Form>(prefix, blocks, context, estimates, radii);
  } else {
    BoundByInt8AndCodes<Form>(prefix, blocks, context, estimates, radii);
  }
}

template <class Form>
void PrefixBounds(const PrefixBlocks& prefix, const PrefixContext& context, float* estimates, float* radii) {
  BoundBlocks<Form>(prefix, BlocksInOrder{prefix.blocks()}, context, estimates, radii);
}

template <class Form>
void PrefixBoundsGathered(const PrefixBlocks& prefix, const TokenId* blocks, std::size_t count,
                          const PrefixContext& context, float* estimates, float* radii) {
  const auto block_bytes = static_cast<std::ptrdiff_t>(prefix.block_bytes());
  BoundBlocks<Form>(prefix, BlocksGathered{blocks, count, block_bytes}, context, estimates, radii);
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
    const auto next = BlocksInOrder{boxes.centres.blocks()}.Next(0);
    for (std::size_t block = 0; block < boxes.centres.blocks(); ++block) {
      const BlockHeader centres = HeaderOf(boxes.centres, block);
      const BlockHeader spreads = HeaderOf(boxes.spreads, block);
      centre_dots(centres.q, next, centre);
      spread_dots(spreads.q, next, spread);
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

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
