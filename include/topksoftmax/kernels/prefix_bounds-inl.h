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

#include <hwy/highway.h>

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

// The loops below are given what they use by value. What a store may alias would be loaded and computed again
// for every block.

/// Where a block's parts begin.
struct BlockHeader {
  const std::byte* begin;
  const float* bias;
  const hwy::bfloat16_t* scale;
  const hwy::bfloat16_t* radius;
  const std::uint8_t* q;

  HWY_INLINE const hwy::bfloat16_t* Halves(std::size_t offset) const {
    return reinterpret_cast<const hwy::bfloat16_t*>(begin + offset);
  }
};

/// The headers of blocks, by their numbers.
struct BlockHeaders {
  explicit BlockHeaders(const PrefixBlocks& blocks)
      : data(blocks.data), block_bytes(blocks.block_bytes()), q_offset(blocks.q_offset()) {}

  HWY_INLINE BlockHeader operator[](std::size_t block) const {
    const std::byte* const begin = data + block * block_bytes;
    const auto* const bias = reinterpret_cast<const float*>(begin);
    const auto* const scale = reinterpret_cast<const hwy::bfloat16_t*>(bias + kBlockRows);
    return {begin, bias, scale, scale + kBlockRows, reinterpret_cast<const std::uint8_t*>(begin + q_offset)};
  }

  const std::byte* data;
  std::size_t block_bytes;
  std::size_t q_offset;
};

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

/// Sums of products as floats.
HWY_INLINE FloatVec ToFloats(IntVec dots) {
  return hn::ConvertTo(FloatTag(), dots);
}

// Which blocks are bounded, and whether those with codes ask for what lies behind them, a line for every line
// that is read. Where they come out of memory they had better: on an AMD EPYC of family 26 that halves the
// time. Asking for a whole block at once fills the processor's queues, and took a tenth of an Intel Xeon's
// bandwidth. Blocks of int8 alone never ask: processors run far enough ahead, and it took time from them out
// of every cache and out of memory.

/// All blocks in order.
struct BlocksInOrder {
  explicit BlocksInOrder(const PrefixBlocks& all) : count(all.blocks()), ask_ahead(all.fill_caches()) {}

  HWY_INLINE std::size_t operator[](std::size_t i) const { return i; }
  /// While a line of them is read.
  HWY_INLINE void AskBehind(const void* line) const {
    if (ask_ahead) prefetch(static_cast<const std::byte*>(line) + kBytesAhead);
  }

  static constexpr std::size_t kBytesAhead = 8192;

  std::size_t count;
  bool ask_ahead;
};

/// Blocks that lie anywhere.
struct BlocksGathered {
  HWY_INLINE std::size_t operator[](std::size_t i) const { return static_cast<std::size_t>(ids[i]); }
  HWY_INLINE void AskBehind(const void* /*line*/) const {}

  const TokenId* ids;
  std::size_t count;
};

/// Bounds of a block's rows by the sums of their int8 coordinates alone.
HWY_INLINE void StoreBounds(const BlockHeader& header, const ContextFactors& factors, const IntVec* dots,
                            float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  const FloatTag d;
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
    const auto estimate = hn::MulAdd(ToFloats(dots[r / kLanes]), factors.Scale(header.scale + r),
                                     hn::LoadU(d, header.bias + r));
    hn::StoreU(estimate, d, estimates + r);
    hn::StoreU(factors.Radius(header.radius + r, hn::Abs(estimate)), d, radii + r);
  }
}

/// The same where there are codes, of which sums have been scaled.
HWY_INLINE void StoreBounds(const BlockHeader& header, const ContextFactors& factors, float code_radius,
                            const IntVec* dots, const FloatVec* by_int4, const FloatVec* by_int2,
                            float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  const FloatTag d;
  const hwy::bfloat16_t* const code_radii = header.Halves(PrefixBlocks::code_radius_offset());
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
    const auto first = hn::MulAdd(ToFloats(dots[r / kLanes]), factors.Scale(header.scale + r),
                                  hn::LoadU(d, header.bias + r));
    const auto second = by_int4[r / kLanes];
    const auto third = by_int2[r / kLanes];
    const auto sizes = hn::Add(hn::Abs(first), hn::Add(hn::Abs(second), hn::Abs(third)));
    const auto radius = hn::MulAdd(ContextFactors::Promoted(code_radii + r), hn::Set(d, code_radius),
                                   factors.Radius(header.radius + r, sizes));
    hn::StoreU(hn::Add(hn::Add(first, second), third), d, estimates + r);
    hn::StoreU(radius, d, radii + r);
  }
}

/// Bounds of blocks, one after the other, by int8 coordinates alone.
template <class Blocks, class Products>
HWY_INLINE void BoundByInt8(BlockHeaders headers, Blocks blocks, ContextFactors factors, Products products,
                            float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  for (std::size_t i = 0; i < blocks.count; ++i) {
    const BlockHeader header = headers[blocks[i]];
    IntVec dots[kBlockVectors];
    products(header.q, dots);
    StoreBounds(header, factors, dots, estimates + i * kBlockRows, radii + i * kBlockRows);
  }
}

/// The sums of a block's codes, by the scales of rows and context.
HWY_INLINE void ScaleCodes(const BlockHeader& header, std::size_t scale_offset, float context_scale,
                           const IntVec (&dots)[kBlockVectors], FloatVec (&products)[kBlockVectors]) {
  const FloatTag d;
  const hwy::bfloat16_t* const scales = header.Halves(scale_offset);
  TOPKSOFTMAX_UNROLL
  for (std::size_t i = 0; i < kBlockVectors; ++i) {
    const auto scale = hn::Mul(ContextFactors::Promoted(scales + i * kLanes), hn::Set(d, context_scale));
    products[i] = hn::Mul(ToFloats(dots[i]), scale);
  }
}

/// What codes of some bits add to the bounds of a block's rows.
template <class Form, std::size_t kBits>
class CodeTerms {
 public:
  CodeTerms(const PrefixCodes& codes, const CodeContext& context)
      : codes_(codes), products_(context, codes.width), scale_(context.scale) {}

  /// The products of the rows of some blocks, in their order; zeros where there are no codes.
  template <std::size_t kBlocks, class Read>
  HWY_INLINE void operator()(const BlockHeader (&headers)[kBlocks],
                             FloatVec (&products)[kBlocks][kBlockVectors], const Read& read) const {
    const FloatTag d;
    if (codes_.width == 0) {
      TOPKSOFTMAX_UNROLL
      for (std::size_t b = 0; b < kBlocks; ++b) {
        for (std::size_t i = 0; i < kBlockVectors; ++i) products[b][i] = hn::Zero(d);
      }
      return;
    }
    const std::uint8_t* u[kBlocks];
    for (std::size_t b = 0; b < kBlocks; ++b) {
      u[b] = reinterpret_cast<const std::uint8_t*>(headers[b].begin + codes_.offset);
    }
    IntVec dots[kBlocks][kBlockVectors];
    products_(u, dots, read);
    TOPKSOFTMAX_UNROLL
    for (std::size_t b = 0; b < kBlocks; ++b) {
      ScaleCodes(headers[b], codes_.scale_offset, scale_, dots[b], products[b]);
    }
  }

 private:
  PrefixCodes codes_;
  CodeProducts<Form, kBits> products_;
  float scale_;
};

/// Bounds of blocks by int8 coordinates and codes. Codes of two bits, of which as many bytes take twice the
/// products, are bound by these: two blocks at a time take a quarter less, on an AMD EPYC of family 26. Those
/// of four bits are bound by what is read, and two streams took a tenth more out of memory.
template <class Form, class Products>
class BoundsByCodes {
 public:
  BoundsByCodes(const PrefixBlocks& prefix, const PrefixContext& context, const Products& products)
      : headers_(prefix),
        factors_(context),
        code_radius_(context.code_radius),
        products_(products),
        codes_begin_(prefix.int4().offset),
        has_int2_(prefix.int2_width > 0),
        of_int4_(prefix.int4(), context.int4),
        of_int2_(prefix.int2(), context.int2) {}

  template <class Blocks>
  HWY_INLINE void operator()(Blocks blocks, float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) const {
    constexpr std::size_t kTogether = CodeProducts<Form, 2>::kTogether;
    std::size_t i = 0;
    if constexpr (kTogether > 1) {
      const std::size_t end = has_int2_ ? blocks.count / kTogether * kTogether : 0;
      for (; i < end; i += kTogether) Some<kTogether>(blocks, i, estimates, radii);
    }
    for (; i < blocks.count; ++i) Some<1>(blocks, i, estimates, radii);
  }

 private:
  /// Of kBlocks blocks from the i-th on.
  template <std::size_t kBlocks, class Blocks>
  HWY_INLINE void Some(const Blocks& blocks, std::size_t i, float* HWY_RESTRICT estimates,
                       float* HWY_RESTRICT radii) const {
    BlockHeader headers[kBlocks];
    IntVec dots[kBlocks][kBlockVectors];
    FloatVec by_int4[kBlocks][kBlockVectors];
    FloatVec by_int2[kBlocks][kBlockVectors];
    const auto read = [&](const void* line) HWY_ATTR { blocks.AskBehind(line); };
    TOPKSOFTMAX_UNROLL
    for (std::size_t b = 0; b < kBlocks; ++b) {
      headers[b] = headers_[blocks[i + b]];
      for (const std::byte* line = headers[b].begin; line < headers[b].begin + codes_begin_; line += kLine) {
        read(line);
      }
      products_(headers[b].q, dots[b]);
    }
    of_int4_(headers, by_int4, read);
    of_int2_(headers, by_int2, read);
    TOPKSOFTMAX_UNROLL
    for (std::size_t b = 0; b < kBlocks; ++b) {
      const std::size_t at = (i + b) * kBlockRows;
      StoreBounds(headers[b], factors_, code_radius_, dots[b], by_int4[b], by_int2[b], estimates + at,
                  radii + at);
    }
  }

  BlockHeaders headers_;
  ContextFactors factors_;
  float code_radius_;
  Products products_;
  std::size_t codes_begin_;
  bool has_int2_;
  CodeTerms<Form, 4> of_int4_;
  CodeTerms<Form, 2> of_int2_;
};

template <class Form, class Blocks>
HWY_INLINE void BoundBlocks(const PrefixBlocks& prefix, const Blocks& blocks, const PrefixContext& context,
                            float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  const typename Form::Context of_form(context.n, prefix.width);
  Form::With(of_form, prefix.width, [&](const auto& products) HWY_ATTR {
    if (prefix.code_width() == 0) {
      BoundByInt8(BlockHeaders(prefix), blocks, ContextFactors(context), products, estimates, radii);
    } else {
      const BoundsByCodes<Form, std::remove_cvref_t<decltype(products)>> bounds(prefix, context, products);
      bounds(blocks, estimates, radii);
    }
  });
}

template <class Form>
void PrefixBounds(const PrefixBlocks& prefix, const PrefixContext& context, float* estimates, float* radii) {
  BoundBlocks<Form>(prefix, BlocksInOrder(prefix), context, estimates, radii);
}

template <class Form>
void PrefixBoundsGathered(const PrefixBlocks& prefix, const TokenId* blocks, std::size_t count,
                          const PrefixContext& context, float* estimates, float* radii) {
  BoundBlocks<Form>(prefix, BlocksGathered{blocks, count}, context, estimates, radii);
}

/// Bounds of boxes by their centres and spreads.
template <class Products>
HWY_INLINE void BoundBoxes(const PrefixBoxes& boxes, ContextFactors factors, Products centre_products,
                           Products spread_products, float* HWY_RESTRICT estimates,
                           float* HWY_RESTRICT radii) {
  const FloatTag d;
  const BlockHeaders centre_headers(boxes.centres);
  const BlockHeaders spread_headers(boxes.spreads);
  const std::size_t blocks = boxes.centres.blocks();
  for (std::size_t block = 0; block < blocks; ++block) {
    const BlockHeader centres = centre_headers[block];
    const BlockHeader spreads = spread_headers[block];
    IntVec centre[kBlockVectors];
    IntVec spread[kBlockVectors];
    centre_products(centres.q, centre);
    spread_products(spreads.q, spread);
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
      const auto bias = hn::LoadU(d, centres.bias + r);
      const auto middle = hn::Mul(ToFloats(centre[r / kLanes]), factors.Scale(centres.scale + r));
      const auto half = hn::Mul(ToFloats(spread[r / kLanes]), factors.Scale(spreads.scale + r));
      const auto sizes = hn::Add(hn::Add(hn::Abs(middle), hn::Abs(bias)), half);
      const auto radius = factors.Radius(centres.radius + r, sizes);
      hn::StoreU(hn::Add(middle, bias), d, estimates + block * kBlockRows + r);
      hn::StoreU(hn::Add(radius, half), d, radii + block * kBlockRows + r);
    }
  }
}

template <class Form>
void BoxBounds(const PrefixBoxes& boxes, const PrefixContext& context, const std::int16_t* magnitudes,
               float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  const std::size_t width = boxes.centres.width;
  const typename Form::Context of_centres(context.n, width);
  const typename Form::Context of_spreads(magnitudes, width);
  Form::With(of_centres, width, [&](const auto& centre_products) HWY_ATTR {
    const std::remove_cvref_t<decltype(centre_products)> spread_products(of_spreads, width);
    BoundBoxes(boxes, ContextFactors(context), centre_products, spread_products, estimates, radii);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
