// SPDX-License-Identifier: Apache-2.0
//
// Bounds of single rows by all their coordinates. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_TAIL_BOUNDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_TAIL_BOUNDS_INL_H_
#undef TOPKSOFTMAX_KERNELS_TAIL_BOUNDS_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_TAIL_BOUNDS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/int8_products-inl.h"
#include "topksoftmax/kernels/prefetch.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"
#include "topksoftmax/kernels/targets.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Rows that are multiplied side by side.
constexpr std::size_t kTailsAtOnce = 4;
/// Bytes of rows that are asked for ahead: what memory delivers while one line of it is waited for, and room
/// to spare.
constexpr std::size_t kTailsAhead = 8192;

/// Products of whole rows in the form of those of blocks: sums[r] = Σ_j q_rj · n_j of `count` rows, at most
/// kTile, and anything for others of kTile. They ask for the same line of later[r], of kTile rows, that they
/// read of rows[r].
template <class Form>
class TailProducts;

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR

template <>
class TailProducts<PlainProducts> {
 public:
  TailProducts(const std::int16_t* n, std::size_t bytes) : n_(n), bytes_(bytes) {}

  HWY_INLINE void operator()(const std::int8_t* const* rows, const std::int8_t* const* /*later*/,
                             std::size_t count, std::int32_t* HWY_RESTRICT sums) const {
    for (std::size_t r = 0; r < count; ++r) {
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < bytes_; ++j) sum += rows[r][j] * n_[j];
      sums[r] = sum;
    }
  }

 private:
  const std::int16_t* n_;
  std::size_t bytes_;
};

#else

/// The products of at most kTile rows, of which products.Add() leaves those of kTailsAtOnce in the lanes of a
/// vector each.
template <class Products>
HWY_INLINE void SumsOfTails(const Products& products, const std::int8_t* const* rows,
                            const std::int8_t* const* later, std::size_t count,
                            std::int32_t* HWY_RESTRICT sums) {
  const IntTag d;
  IntVec totals[kTile];
  for (std::size_t r = 0; r < kTile; r += kTailsAtOnce) {
    if (r < count) {
      products.Add(rows + r, later + r, totals + r);
    } else {
      TOPKSOFTMAX_UNROLL
      for (std::size_t i = 0; i < kTailsAtOnce; ++i) totals[r + i] = hn::Zero(d);
    }
  }
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kTile; r += kLanes) hn::StoreU(Fold(totals + r), d, sums + r);
}

/// Asks for the line at `at` of kTailsAtOnce rows, if one begins there.
HWY_INLINE void PrefetchLines(const std::int8_t* const* rows, std::size_t at) {
  if (at % kLine != 0) return;
  TOPKSOFTMAX_UNROLL
  for (std::size_t r = 0; r < kTailsAtOnce; ++r) prefetch_second(rows[r] + at);
}

#if TOPKSOFTMAX_TARGET_HAS_AVX3_DL || HWY_TARGET == HWY_AVX2

template <>
class TailProducts<ByteProducts> {
 public:
  TailProducts(const std::int16_t* n, std::size_t bytes)
      : bytes_(bytes), start_(-128 * SplitShorts(n, bytes, high_, low_)) {}

  HWY_INLINE void operator()(const std::int8_t* const* rows, const std::int8_t* const* later,
                             std::size_t count, std::int32_t* HWY_RESTRICT sums) const {
    const IntTag d;
    SumsOfTails(*this, rows, later, count, sums);
    for (std::size_t r = 0; r < kTile; r += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, sums + r), hn::Set(d, start_)), d, sums + r);
    }
  }

  HWY_INLINE void Add(const std::int8_t* const* rows, const std::int8_t* const* later, IntVec* totals) const {
    const hn::Repartition<std::int8_t, IntTag> d8;
    const hn::Repartition<std::uint8_t, IntTag> unsigned8;
    IntVec high[kTailsAtOnce];
    IntVec low[kTailsAtOnce];
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kTailsAtOnce; ++r) high[r] = low[r] = hn::Zero(IntTag());
    for (std::size_t at = 0; at < bytes_; at += hn::Lanes(d8)) {
      PrefetchLines(later, at);
      const auto n_high = hn::BitCast(IntTag(), hn::Load(d8, high_ + at));
      const auto n_low = hn::BitCast(IntTag(), hn::Load(d8, low_ + at));
      TOPKSOFTMAX_UNROLL
      for (std::size_t r = 0; r < kTailsAtOnce; ++r) {
        const auto q = hn::BitCast(unsigned8, hn::LoadU(d8, rows[r] + at));
        const auto shifted = hn::Xor(q, hn::Set(unsigned8, 0x80));  // q + 128
        high[r] = ByteProducts::AddByteProducts(high[r], shifted, n_high);
        low[r] = ByteProducts::AddByteProducts(low[r], shifted, n_low);
      }
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kTailsAtOnce; ++r) {
      totals[r] = hn::Add(hn::ShiftLeft<7>(high[r]), low[r]);
    }
  }

 private:
  static constexpr std::size_t kMostBytes = PrefixTails{.width = kMaxWidth}.row_bytes();

  std::size_t bytes_;
  HWY_ALIGN std::int8_t high_[kMostBytes];
  HWY_ALIGN std::int8_t low_[kMostBytes];
  std::int32_t start_;
};

#endif

#if !TOPKSOFTMAX_TARGET_HAS_AVX3_DL

template <>
class TailProducts<WordProducts> {
 public:
  TailProducts(const std::int16_t* n, std::size_t bytes) : n_(n), bytes_(bytes) {}

  HWY_INLINE void operator()(const std::int8_t* const* rows, const std::int8_t* const* later,
                             std::size_t count, std::int32_t* HWY_RESTRICT sums) const {
    SumsOfTails(*this, rows, later, count, sums);
  }

  HWY_INLINE void Add(const std::int8_t* const* rows, const std::int8_t* const* later, IntVec* totals) const {
    const hn::Repartition<std::int16_t, IntTag> d16;
    const hn::Rebind<std::int8_t, decltype(d16)> d8;
    IntVec acc[kTailsAtOnce];
    IntVec more[kTailsAtOnce];  // where NEON adds half of the products
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kTailsAtOnce; ++r) acc[r] = more[r] = hn::Zero(IntTag());
    for (std::size_t at = 0; at < bytes_; at += hn::Lanes(d8)) {
      PrefetchLines(later, at);
      const auto n = hn::LoadU(d16, n_ + at);
      TOPKSOFTMAX_UNROLL
      for (std::size_t r = 0; r < kTailsAtOnce; ++r) {
        const auto q = hn::PromoteTo(d16, hn::LoadU(d8, rows[r] + at));
        acc[r] = hn::ReorderWidenMulAccumulate(IntTag(), q, n, acc[r], more[r]);
      }
    }
    TOPKSOFTMAX_UNROLL
    for (std::size_t r = 0; r < kTailsAtOnce; ++r) totals[r] = hn::Add(acc[r], more[r]);
  }

 private:
  const std::int16_t* n_;
  std::size_t bytes_;
};

#endif

#endif

template <class Form>
void TailBounds(const PrefixTails& tails, const TailContext& context, const TokenId* HWY_RESTRICT ids,
                std::size_t count, float* HWY_RESTRICT estimates, float* HWY_RESTRICT radii) {
  if (count == 0) return;
  const std::size_t row_bytes = tails.row_bytes();
  const TailProducts<Form> products(context.n, row_bytes);
  const auto row_of = [&](std::size_t i) {
    return reinterpret_cast<const std::int8_t*>(
        tails.row(static_cast<std::size_t>(ids[std::min(i, count - 1)])));
  };
  const std::size_t ahead = std::clamp<std::size_t>(kTailsAhead / row_bytes, kTailsAtOnce, 2 * kTile);
  for (std::size_t i = 0; i < std::min(count, ahead); ++i) {
    for (std::size_t at = 0; at < row_bytes; at += kLine) prefetch_second(row_of(i) + at);
  }
  HWY_ALIGN std::int32_t sums[kTile];
  const std::int8_t* rows[kTile];
  const std::int8_t* later[kTile];
  for (std::size_t first = 0; first < count; first += kTile) {
    const std::size_t size = std::min(kTile, count - first);
    for (std::size_t r = 0; r < kTile; ++r) {
      rows[r] = row_of(first + r);
      later[r] = row_of(first + r + ahead);
    }
    products(rows, later, size, sums);
    for (std::size_t r = 0; r < size; ++r) {
      const PrefixTails::Footer footer = tails.footer(rows[r]);
      const float before = estimates[first + r];
      const float behind = footer.scale * context.scale * static_cast<float>(sums[r]);
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
