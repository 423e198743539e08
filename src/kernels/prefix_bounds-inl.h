// SPDX-License-Identifier: Apache-2.0
//
// Estimates of all logits from int8 prefixes, with the radius that the real ones lie in.
// Included once for every instruction set.

#if defined(TOPKSOFTMAX_SRC_KERNELS_PREFIX_BOUNDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_SRC_KERNELS_PREFIX_BOUNDS_INL_H_
#undef TOPKSOFTMAX_SRC_KERNELS_PREFIX_BOUNDS_INL_H_
#else
#define TOPKSOFTMAX_SRC_KERNELS_PREFIX_BOUNDS_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/reduce-inl.h"
#include "kernels/row_dot-inl.h"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"

HWY_BEFORE_NAMESPACE();
namespace topksoftmax::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kBlockRows = PrefixBlocks::kRows;

// BlockDots: dots[r] = Σ_j q_rj · n_j for the 16 rows of a block, in exact integers: every form gives the
// same. Rows hold q + 128 without a sign, so 128·Σn is taken off at the start.
#if HWY_TARGET == HWY_AVX3_DL

/// sum[i] += the four products of bytes 4i … 4i+3, of rows without and n with a sign. Every processor of this
/// target has the instruction, but Highway 1.0.3 does not enable its intrinsic.
static HWY_INLINE __m512i AddByteProducts(__m512i sum, __m512i rows, __m512i n) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(rows), "v"(n));
  return sum;
}

/// Two byte products make a 15-bit one: n = 128·high + low.
class BlockDots {
 public:
  BlockDots(const std::int16_t* n, std::size_t width) : groups_(width / 4) {
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
  }

  HWY_INLINE void operator()(const std::uint8_t* q, std::int32_t* HWY_RESTRICT dots) const {
    __m512i high = _mm512_set1_epi32(high_start_);
    __m512i low = _mm512_set1_epi32(low_start_);
    for (std::size_t g = 0; g < groups_; ++g) {
      const __m512i rows = _mm512_loadu_si512(q + 64 * g);
      high = AddByteProducts(high, rows, Broadcast(high_ + 4 * g));
      low = AddByteProducts(low, rows, Broadcast(low_ + 4 * g));
    }
    _mm512_storeu_si512(dots, _mm512_add_epi32(_mm512_slli_epi32(high, 7), low));
  }

 private:
  static HWY_INLINE __m512i Broadcast(const std::int8_t* four) {
    std::int32_t word;
    std::memcpy(&word, four, sizeof(word));
    return _mm512_set1_epi32(word);
  }

  std::size_t groups_;
  std::int32_t high_start_;
  std::int32_t low_start_;
  alignas(64) std::int8_t high_[PrefixBlocks::kMaxWidth];
  alignas(64) std::int8_t low_[PrefixBlocks::kMaxWidth];
};

#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4

/// 16-bit products, added in pairs.
class BlockDots {
 public:
  BlockDots(const std::int16_t* n, std::size_t width) : groups_(width / 4) {
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < width; ++j) sum += n[j];
    start_ = -128 * sum;
    for (std::size_t g = 0; g < groups_; ++g) {
      for (std::size_t i = 0; i < kLanes16; ++i) n_[g * kLanes16 + i] = n[4 * g + i % 4];
    }
  }

  HWY_INLINE void operator()(const std::uint8_t* q, std::int32_t* HWY_RESTRICT dots) const {
    constexpr std::size_t parts = 4 * kBlockRows / kLanes16;
    hn::Vec<Tag32> acc[parts];
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < parts; ++i) acc[i] = hn::Zero(Tag32());
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto n = hn::Load(Tag16(), n_ + g * kLanes16);
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < parts; ++i) {
        const auto rows = hn::PromoteTo(Tag16(), hn::LoadU(Tag8(), q + 64 * g + i * kLanes16));
        auto unused = hn::Zero(Tag32());  // the x86 form of this operation adds neighbours into the first sum
        acc[i] = hn::ReorderWidenMulAccumulate(Tag32(), rows, n, acc[i], unused);
      }
    }
    HWY_ALIGN std::int32_t pairs[2 * kBlockRows];
    TOPKSOFTMAX_UNROLL
    for (std::size_t i = 0; i < parts; ++i) hn::Store(acc[i], Tag32(), pairs + i * kLanes16 / 2);
    for (std::size_t r = 0; r < kBlockRows; ++r) dots[r] = start_ + pairs[2 * r] + pairs[2 * r + 1];
  }

 private:
  using Tag16 = hn::ScalableTag<std::int16_t>;
  using Tag32 = hn::ScalableTag<std::int32_t>;
  using Tag8 = hn::Rebind<std::uint8_t, Tag16>;
  static constexpr std::size_t kLanes16 = hn::MaxLanes(Tag16());

  std::size_t groups_;
  std::int32_t start_;
  HWY_ALIGN std::int16_t n_[PrefixBlocks::kMaxWidth / 4 * kLanes16];
};

#else

/// The plain form.
class BlockDots {
 public:
  BlockDots(const std::int16_t* n, std::size_t width) : n_(n), width_(width) {}

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

 private:
  const std::int16_t* n_;
  std::size_t width_;
};

#endif

inline void PrefixBounds(const PrefixBlocks& prefix, const PrefixContext& context,
                         float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  const FloatTag d;
  const hn::Rebind<hwy::bfloat16_t, FloatTag> d16;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const BlockDots block_dots(context.n, prefix.width);
  const auto context_scale = hn::Set(d, context.scale);
  const auto context_radius = hn::Set(d, context.radius);
  const auto rounding = hn::Set(d, PrefixBlocks::kRounding);
  const auto smallest = hn::Set(d, PrefixBlocks::kSmallest);
  HWY_ALIGN std::int32_t dots[kBlockRows];
  for (std::size_t block = 0; block < prefix.blocks(); ++block) {
    const std::byte* const header = prefix.data + block * prefix.block_bytes();
    const auto* const bias = reinterpret_cast<const float*>(header);
    const auto* const scale = reinterpret_cast<const hwy::bfloat16_t*>(bias + kBlockRows);
    const auto* const radius = scale + kBlockRows;
    block_dots(reinterpret_cast<const std::uint8_t*>(header + PrefixBlocks::kHeader), dots);
    for (std::size_t r = 0; r < kBlockRows; r += kLanes) {
      const auto dot = hn::ConvertTo(d, hn::Load(d32, dots + r));
      const auto row_scale = hn::Mul(hn::PromoteTo(d, hn::LoadU(d16, scale + r)), context_scale);
      const auto estimate = hn::MulAdd(dot, row_scale, hn::LoadU(d, bias + r));
      const auto spread = hn::MulAdd(hn::PromoteTo(d, hn::LoadU(d16, radius + r)), context_radius, smallest);
      hn::StoreU(estimate, d, estimates + block * kBlockRows + r);
      hn::StoreU(hn::MulAdd(hn::Abs(estimate), rounding, spread), d, radii + block * kBlockRows + r);
    }
  }
}

inline std::size_t Reaching(const float* HWY_RESTRICT estimates, const float* HWY_RESTRICT radii,
                            std::size_t count, float threshold, TokenId* HWY_RESTRICT ids) {
  const FloatTag d;
  const auto limit = hn::Set(d, threshold);
  std::size_t found = 0;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto upper = hn::Add(hn::LoadU(d, estimates + i), hn::LoadU(d, radii + i));
    if (hn::AllTrue(d, hn::Lt(upper, limit))) continue;
    for (std::size_t lane = i; lane < i + kLanes; ++lane) {
      if (!(estimates[lane] + radii[lane] < threshold)) ids[found++] = static_cast<TokenId>(lane);
    }
  }
  for (; i < count; ++i) {
    if (!(estimates[i] + radii[i] < threshold)) ids[found++] = static_cast<TokenId>(i);
  }
  return found;
}

// 2^(i+f) ≤ 2^i·(1+f) ≤ 1.0615·2^(i+f) for 0 ≤ f < 1, and 2^i·(1+f) are the very bits of the float whose
// exponent and mantissa, read as one number, are i + f: an exponential for the price of a conversion.
constexpr double kLinearExcess = 1.0615;
/// One unit of x in the bits of a float: 2²³/ln 2.
constexpr float kLinearScale = 12102203.0F;
/// The rounding of i + f in floats moves the power by less than this share.
constexpr double kLinearRounding = 0x1p-14;

/// 2^i·(1+f) for i + f = (x − shift)/ln 2, held within the exponents of floats.
template <class V>
HWY_INLINE V LinearExp(V x, V shift) {
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const auto one = hn::Set(d, 0x1.fcp29F);  // 127·2²³, the bits of 1
  const auto bits = hn::MulAdd(hn::Sub(x, shift), hn::Set(d, kLinearScale), one);
  const auto held = hn::Min(hn::Max(bits, hn::Set(d, 0x1p23F)), hn::Set(d, 0x1.fcp30F));
  return hn::BitCast(d, hn::ConvertTo(d32, held));
}

inline SumBounds SumExpBounds(const float* HWY_RESTRICT estimates, const float* HWY_RESTRICT radii,
                              std::size_t count, float shift) {
  const FloatTag d;
  const auto origin = hn::Set(d, shift);
  const auto smallest = hn::Set(d, 0x1p-125F);  // what was held up to 2⁻¹²⁶ proves nothing from below
  double low_sum = 0.0;
  double high_sum = 0.0;
  std::size_t i = 0;
  while (i + kLanes <= count) {
    auto low = hn::Zero(d);
    auto high = hn::Zero(d);
    for (std::size_t n = 0; n < kSumBlock && i + kLanes <= count; ++n, i += kLanes) {
      const auto estimate = hn::LoadU(d, estimates + i);
      const auto radius = hn::LoadU(d, radii + i);
      high = hn::Add(high, LinearExp(hn::Add(estimate, radius), origin));
      const auto least = LinearExp(hn::Sub(estimate, radius), origin);
      low = hn::Add(low, hn::IfThenElseZero(hn::Gt(least, smallest), least));
    }
    low_sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, low)));
    high_sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, high)));
  }
  for (; i < count; ++i) {
    const double x = static_cast<double>(estimates[i]) - static_cast<double>(shift);
    low_sum += std::exp(x - static_cast<double>(radii[i]));
    high_sum += std::exp(x + static_cast<double>(radii[i]));
  }
  return {low_sum / kLinearExcess * (1.0 - kLinearRounding), high_sum * (1.0 + kLinearRounding)};
}

}  // namespace HWY_NAMESPACE
}  // namespace topksoftmax::kernels
HWY_AFTER_NAMESPACE();

#endif
