// SPDX-License-Identifier: Apache-2.0
//
// Estimates of all logits from prefixes in int8 and int4, with the radius that the real ones lie in.
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
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/int4_products-inl.h"
#include "topksoftmax/kernels/int8_products-inl.h"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
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
  const Int4Products<Form> int4_dots(context.int4, prefix.int4_width);
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
