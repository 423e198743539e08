// SPDX-License-Identifier: Apache-2.0
//
// Winner-take-all hashes of vectors, and which tokens they hit often enough.
// Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_WTA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_WTA_INL_H_
#undef TOPKSOFTMAX_KERNELS_WTA_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_WTA_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/row_dot-inl.h"
#include "topksoftmax/kernels/wta_bands.hpp"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// Codes, a lane each: values(j, k) are the lanes' k-th values of unit j.
template <class Values>
HWY_INLINE hn::Vec<hn::Rebind<std::int32_t, FloatTag>> BandCodes(const WtaBands& bands,
                                                                 const Values& values) {
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const auto base = hn::Set(d32, static_cast<std::int32_t>(bands.K));
  auto codes = hn::Zero(d32);
  for (std::size_t j = 0; j < bands.units; ++j) {
    auto largest = values(j, std::size_t{0});
    auto winner = hn::Zero(d32);
    for (std::size_t k = 1; k < bands.K; ++k) {
      const auto value = values(j, k);
      const auto wins = hn::RebindMask(d32, hn::Gt(value, largest));
      winner = hn::IfThenElse(wins, hn::Set(d32, static_cast<std::int32_t>(k)), winner);
      largest = hn::Max(value, largest);
    }
    codes = hn::Add(hn::Mul(codes, base), winner);
  }
  return codes;
}

inline void WtaCodes(const WtaBands& bands, const float* HWY_RESTRICT x, std::uint32_t* HWY_RESTRICT codes) {
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> d32;
  const hn::Rebind<std::uint32_t, FloatTag> du32;
  for (std::size_t g = 0; g < bands.groups; ++g) {
    const std::int32_t* const group = bands.positions + g * bands.units * bands.K * WtaBands::kGroup;
    for (std::size_t lane = 0; lane < WtaBands::kGroup; lane += kLanes) {
      const auto values = [&](std::size_t j, std::size_t k) HWY_ATTR {
        const std::int32_t* const p = group + (j * bands.K + k) * WtaBands::kGroup + lane;
        return hn::GatherIndex(d, x, hn::LoadU(d32, p));
      };
      hn::StoreU(hn::BitCast(du32, BandCodes(bands, values)), du32, codes + g * WtaBands::kGroup + lane);
    }
  }
}

inline void WtaCodesBatch(const WtaBands& bands, const float* HWY_RESTRICT columns,
                          std::uint32_t* HWY_RESTRICT codes) {
  const FloatTag d;
  const hn::Rebind<std::uint32_t, FloatTag> du32;
  for (std::size_t w = 0; w < bands.groups * WtaBands::kGroup; ++w) {
    const std::int32_t* const band = bands.positions +
                                     w / WtaBands::kGroup * bands.units * bands.K * WtaBands::kGroup +
                                     w % WtaBands::kGroup;
    for (std::size_t lane = 0; lane < WtaBands::kGroup; lane += kLanes) {
      const auto values = [&](std::size_t j, std::size_t k) HWY_ATTR {
        const auto position = static_cast<std::size_t>(band[(j * bands.K + k) * WtaBands::kGroup]);
        return hn::LoadU(d, columns + position * WtaBands::kGroup + lane);
      };
      hn::StoreU(hn::BitCast(du32, BandCodes(bands, values)), du32, codes + w * WtaBands::kGroup + lane);
    }
  }
}

/// The bits i < 64 for which hits[i] ≥ threshold.
HWY_INLINE std::uint64_t ReachingBits(const std::uint16_t* HWY_RESTRICT hits, std::uint16_t threshold) {
  std::uint64_t bits = 0;
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < 64; ++i) bits |= std::uint64_t{hits[i] >= threshold} << i;
#else
  const hn::ScalableTag<std::uint16_t> d;
  constexpr std::size_t lanes = hn::MaxLanes(d);
  const auto limit = hn::Set(d, threshold);
  TOPKSOFTMAX_UNROLL
  for (std::size_t i = 0; i < 64; i += lanes) {
    const auto hit = hn::LoadU(d, hits + i);
    std::uint8_t bytes[8] = {};  // as many as StoreMaskBits may write to
    hn::StoreMaskBits(d, hn::Eq(hn::Max(hit, limit), hit), bytes);
    for (std::size_t n = 0; n < lanes / 8; ++n) bits |= std::uint64_t{bytes[n]} << (i + 8 * n);
  }
#endif
  return bits;
}

inline std::size_t MarkReaching(const std::uint16_t* HWY_RESTRICT hits, std::size_t words,
                                std::uint16_t threshold, std::uint64_t* HWY_RESTRICT marks) {
  std::size_t marked = 0;
  for (std::size_t word = 0; word < words; ++word) {
    marks[word] |= ReachingBits(hits + 64 * word, threshold);
    marked += static_cast<std::size_t>(std::popcount(marks[word]));
  }
  return marked;
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
