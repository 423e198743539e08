// SPDX-License-Identifier: Apache-2.0
//
// Bounds by prefixes for several contexts at once, by the tiles of Intel's AMX. Included once for every
// instruction set, and empty but for AVX3_DL, which all processors with tiles have.

#if defined(TOPKSOFTMAX_KERNELS_PREFIX_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_PREFIX_AMX_INL_H_
#undef TOPKSOFTMAX_KERNELS_PREFIX_AMX_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_PREFIX_AMX_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/code_products-inl.h"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/int8_products-inl.h"
#include "topksoftmax/kernels/prefix_batch-inl.h"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_bounds-inl.h"

#if HWY_TARGET == HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

// A tile holds sixteen rows of 64 bytes. One instruction multiplies sixteen rows of bytes with a sign, here
// the contexts, by the bytes of sixteen rows of a block, 64 coordinates of each: just as a block has them.
// A context's coordinates are integers of two bytes, n = 256·high + low, and take two rows of a tile.
//
// Tiles are written in assembly: GCC and Clang name them in no other way, and neither knows that they are in
// use. Nothing else uses any.

constexpr std::size_t kAmxRows = 16;
constexpr std::size_t kAmxRowBytes = 64;
constexpr std::size_t kAmxBytes = kAmxRows * kAmxRowBytes;
/// Coordinates that a tile has of every row.
constexpr std::size_t kAmxWidth = kAmxRowBytes;
static_assert(kAmxRows == kBlockRows && kAmxRows == 2 * kPrefixBatch);

template <int tile>
HWY_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}

/// From rows of 64 bytes that lie one after the other.
template <int tile>
HWY_INLINE void LoadTile(const void* rows) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(kAmxRowBytes), "i"(tile) : "memory");
}

template <int tile>
HWY_INLINE void StoreTile(void* rows) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(kAmxRowBytes), "i"(tile) : "memory");
}

/// Adds the products of contexts and rows to `sums`.
template <int sums, int contexts, int rows>
HWY_INLINE void MultiplyTiles() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(contexts), "i"(rows));
}

/// What the tiles are used for.
enum Tile : int { kSumTile = 0, kContextTile = 2, kRowTile = 3 };
constexpr std::size_t kAmxTiles = 5;
/// Blocks that a tile of contexts meets: kSumTile and kRowTile have a tile of each.
constexpr std::size_t kAmxBlocks = 2;

/// Makes tiles usable on this thread, with as many rows as so many contexts take, while it lives.
class TilesInUse {
 public:
  explicit TilesInUse(std::size_t contexts) {
    Shapes shapes;
    for (std::size_t tile = 0; tile < kAmxTiles; ++tile) {
      shapes.row_bytes[tile] = kAmxRowBytes;
      shapes.rows[tile] = static_cast<std::uint8_t>(tile < kRowTile ? 2 * contexts : kAmxRows);
    }
    asm volatile("ldtilecfg %0" : : "m"(shapes));
  }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
  ~TilesInUse() { asm volatile("tilerelease"); }

 private:
  /// As the processor takes them.
  struct Shapes {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::array<std::uint8_t, 14> reserved{};
    std::array<std::uint16_t, 16> row_bytes{};
    std::array<std::uint8_t, 16> rows{};
  };
  static_assert(sizeof(Shapes) == 64);
};

/// Tiles of contexts at the most: a thread's stack has them.
constexpr std::size_t kMostAmxSteps = 64;
/// Halvings of a context's step at the most, so that what it is in the first one fits in two bytes.
constexpr int kMostAmxShifts = 8;

/// Tiles that so many coordinates take.
constexpr std::size_t AmxSteps(std::size_t width) {
  return (width + kAmxWidth - 1) / kAmxWidth;
}

/// Contexts as the tiles that their rows meet, one for every 64 coordinates, with zeros behind the last.
class ContextTiles {
 public:
  ContextTiles(const PrefixBlocks& prefix, const PrefixProducts* batch, std::size_t count) {
    std::memset(tiles_, 0, Steps(prefix) * kAmxBytes);
    const std::size_t int4 = AmxSteps(prefix.width);
    const std::size_t int2 = int4 + AmxSteps(prefix.int4_width);
    for (std::size_t q = 0; q < count; ++q) {
      const PrefixContext& context = batch[q].context;
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < prefix.width; ++j) {
        Put(q, 0, j, context.n[j]);
        sum += context.n[j];
      }
      start_[q] = -128 * sum;
      PutCodes(q, int4, context.int4, prefix.int4_width);
      PutCodes(q, int2, context.int2, prefix.int2_width);
    }
  }

  /// Whether tiles can hold what contexts have.
  static bool CanHold(const PrefixBlocks& prefix, const PrefixProducts* batch, std::size_t count) {
    const auto fits = [](const CodeContext& context, std::size_t width) {
      int shifts = 0;
      for (std::size_t segment = 1; segment < width / CodeContext::kSegment; ++segment) {
        shifts += context.shifts[segment];
      }
      return shifts <= kMostAmxShifts;
    };
    return Steps(prefix) <= kMostAmxSteps &&
           std::all_of(batch, batch + count, [&](const PrefixProducts& one) {
             return fits(one.context.int4, prefix.int4_width) && fits(one.context.int2, prefix.int2_width);
           });
  }

  const std::int8_t* Step(std::size_t step) const { return tiles_ + step * kAmxBytes; }
  /// What is added to the sum of a context's int8 coordinates for the 128 that rows hold too much.
  std::int32_t start(std::size_t q) const { return start_[q]; }

 private:
  static std::size_t Steps(const PrefixBlocks& prefix) {
    return AmxSteps(prefix.width) + AmxSteps(prefix.int4_width) + AmxSteps(prefix.int2_width);
  }

  void Put(std::size_t q, std::size_t first_step, std::size_t j, std::int32_t n) {
    const std::int32_t high = (n + 128) >> 8;
    std::int8_t* const at = tiles_ + (first_step + j / kAmxWidth) * kAmxBytes + j % kAmxWidth;
    at[2 * q * kAmxRowBytes] = static_cast<std::int8_t>(high);
    at[(2 * q + 1) * kAmxRowBytes] = static_cast<std::int8_t>(n - 256 * high);
  }

  /// Coordinates in the last segment's step.
  void PutCodes(std::size_t q, std::size_t first_step, const CodeContext& context, std::size_t width) {
    int shift = 0;
    for (std::size_t segment = width / CodeContext::kSegment; segment-- > 0;) {
      for (std::size_t i = 0; i < CodeContext::kSegment; ++i) {
        const std::size_t j = segment * CodeContext::kSegment + i;
        Put(q, first_step, j, context.n[j] * (1 << shift));
      }
      shift += context.shifts[segment];
    }
  }

  HWY_ALIGN std::int8_t tiles_[kMostAmxSteps * kAmxBytes];
  std::int32_t start_[kPrefixBatch];
};

/// The sums of a tile: of a context's high bytes, and then of its low ones, with each row of a block.
struct TileSums {
  HWY_ALIGN std::int32_t values[kAmxRows * kBlockRows];

  HWY_INLINE IntVec of(std::size_t q) const {
    const IntTag d;
    const auto high = hn::Load(d, values + 2 * q * kBlockRows);
    return hn::Add(hn::ShiftLeft<8>(high), hn::Load(d, values + (2 * q + 1) * kBlockRows));
  }
};

/// Tiles that codes are taken apart into before the first of them is loaded: a tile waits until what was
/// stored has reached the cache.
constexpr std::size_t kUnpackedAhead = 3;

/// Bytes that codes of a block are taken apart into, for some steps.
class UnpackedCodes {
 public:
  HWY_INLINE std::uint8_t* Step(std::size_t step) { return tiles_ + step % kSteps * kAmxBytes; }

  /// Those of step `step` of codes of kBits bits.
  template <std::size_t kBits>
  HWY_INLINE void Take(const std::uint8_t* u, std::size_t width, std::size_t step) {
    using Layout = CodeLayout<kBits>;
    const hn::ScalableTag<std::uint8_t> bytes;
    const hn::ScalableTag<std::uint16_t> words;
    constexpr std::size_t kGroups = kAmxWidth / Layout::kInGroup;
    const auto mask = hn::Set(bytes, static_cast<std::uint8_t>(Layout::kLargest));
    const std::size_t first = step * kGroups;
    const std::size_t groups = std::min(kGroups, width / Layout::kInGroup - first);
    std::uint8_t* to = Step(step);
    for (std::size_t g = first; g < first + groups; ++g) {
      const auto codes = hn::LoadU(bytes, u + g * Layout::kGroupBytes);
      TOPKSOFTMAX_UNROLL
      for (std::size_t s = 0; s < Layout::kInByte; ++s, to += kAmxRowBytes) {
        const auto shifted = hn::ShiftRightSame(hn::BitCast(words, codes), static_cast<int>(kBits * s));
        hn::Store(hn::And(hn::BitCast(bytes, shifted), mask), bytes, to);
      }
    }
  }

 private:
  static constexpr std::size_t kSteps = 4;
  static_assert(kSteps > kUnpackedAhead);

  HWY_ALIGN std::uint8_t tiles_[kSteps * kAmxBytes] = {};
};

/// Bounds of two blocks at a time.
class BoundsByTiles {
 public:
  BoundsByTiles(const PrefixBlocks& prefix, const PrefixProducts* batch, std::size_t count)
      : headers_(prefix),
        width_(prefix.width),
        int4_(prefix.int4()),
        int2_(prefix.int2()),
        contexts_(prefix, batch, count),
        batch_(batch),
        count_(count) {
    for (std::size_t q = 0; q < count; ++q) {
      const PrefixContext& context = batch[q].context;
      centres_of_int4_[q] = CodeLayout<4>::Centre(context.int4, int4_.width);
      centres_of_int2_[q] = CodeLayout<2>::Centre(context.int2, int2_.width);
    }
  }

  /// Of blocks first and first + 1, by tiles in use.
  HWY_INLINE void operator()(std::size_t first) {
    const BlockHeader headers[kAmxBlocks] = {headers_[first], headers_[first + 1]};
    SumInt8(headers);
    const std::size_t steps = AmxSteps(width_);
    SumCodes<4>(headers, int4_, steps, of_int4_);
    SumCodes<2>(headers, int2_, steps + AmxSteps(int4_.width), of_int2_);
    for (std::size_t b = 0; b < kAmxBlocks; ++b) Store(headers[b], b, (first + b) * kBlockRows);
  }

 private:
  using Headers = BlockHeader[kAmxBlocks];

  /// Adds up the products of so many tiles of contexts and rows, which rows(b, step) finds for block b.
  /// prepare(step) comes kUnpackedAhead steps before it is asked.
  template <class Prepare, class RowsOf>
  HWY_INLINE void Sum(std::size_t first_step, std::size_t steps, const Prepare& prepare, const RowsOf& rows,
                      TileSums* sums) {
    for (std::size_t step = 0; step < std::min(kUnpackedAhead, steps); ++step) prepare(step);
    ZeroTile<kSumTile>();
    ZeroTile<kSumTile + 1>();
    for (std::size_t step = 0; step < steps; ++step) {
      if (step + kUnpackedAhead < steps) prepare(step + kUnpackedAhead);
      LoadTile<kContextTile>(contexts_.Step(first_step + step));
      LoadTile<kRowTile>(rows(0, step));
      MultiplyTiles<kSumTile, kContextTile, kRowTile>();
      LoadTile<kRowTile + 1>(rows(1, step));
      MultiplyTiles<kSumTile + 1, kContextTile, kRowTile + 1>();
    }
    StoreTile<kSumTile>(sums[0].values);
    StoreTile<kSumTile + 1>(sums[1].values);
  }

  HWY_INLINE void SumInt8(const Headers& headers) {
    const auto rows = [&](std::size_t b, std::size_t step)
                          HWY_ATTR { return headers[b].q + step * kAmxBytes; };
    Sum(
        0, AmxSteps(width_), [](std::size_t) {}, rows, of_int8_);
  }

  template <std::size_t kBits>
  HWY_INLINE void SumCodes(const Headers& headers, const PrefixCodes& codes, std::size_t first_step,
                           TileSums* sums) {
    if (codes.width == 0) return;
    const auto unpack = [&](std::size_t step) HWY_ATTR {
      for (std::size_t b = 0; b < kAmxBlocks; ++b) {
        const auto* const u = reinterpret_cast<const std::uint8_t*>(headers[b].begin + codes.offset);
        unpacked_[b].template Take<kBits>(u, codes.width, step);
      }
    };
    const auto rows = [&](std::size_t b, std::size_t step) HWY_ATTR { return unpacked_[b].Step(step); };
    Sum(first_step, AmxSteps(codes.width), unpack, rows, sums);
  }

  /// 2·Σ u·n less what all rows have too much of it.
  template <std::size_t kBits>
  HWY_INLINE void Scaled(const BlockHeader& header, const PrefixCodes& codes, float scale,
                         std::int32_t centre, IntVec sum, FloatVec (&products)[kBlockVectors]) const {
    if (codes.width == 0) {
      products[0] = hn::Zero(FloatTag());
      return;
    }
    const IntVec dots[kBlockVectors] = {hn::Sub(hn::ShiftLeft<1>(sum), hn::Set(IntTag(), centre))};
    ScaleCodes(header, codes.scale_offset, scale, dots, products);
  }

  HWY_INLINE void Store(const BlockHeader& header, std::size_t b, std::size_t row) const {
    static_assert(kBlockVectors == 1);
    for (std::size_t q = 0; q < count_; ++q) {
      const PrefixContext& context = batch_[q].context;
      const ContextFactors factors(context);
      const IntVec dots[1] = {hn::Add(of_int8_[b].of(q), hn::Set(IntTag(), contexts_.start(q)))};
      float* const estimates = batch_[q].estimates + row;
      float* const radii = batch_[q].radii + row;
      if (int4_.width + int2_.width == 0) {
        StoreBounds(header, factors, dots, estimates, radii);
        continue;
      }
      FloatVec by_int4[kBlockVectors];
      FloatVec by_int2[kBlockVectors];
      Scaled<4>(header, int4_, context.int4.scale, centres_of_int4_[q], of_int4_[b].of(q), by_int4);
      Scaled<2>(header, int2_, context.int2.scale, centres_of_int2_[q], of_int2_[b].of(q), by_int2);
      StoreBounds(header, factors, context.code_radius, dots, by_int4, by_int2, estimates, radii);
    }
  }

  BlockHeaders headers_;
  std::size_t width_;
  PrefixCodes int4_;
  PrefixCodes int2_;
  ContextTiles contexts_;
  const PrefixProducts* batch_;
  std::size_t count_;
  std::int32_t centres_of_int4_[kPrefixBatch];
  std::int32_t centres_of_int2_[kPrefixBatch];
  UnpackedCodes unpacked_[kAmxBlocks];
  TileSums of_int8_[kAmxBlocks];
  TileSums of_int4_[kAmxBlocks] = {};
  TileSums of_int2_[kAmxBlocks] = {};
};

/// The same bounds as PrefixBoundsBatch's. The last step of a block's int8 coordinates may read what lies
/// behind them, which meets zeros; blocks that would read what is behind the last block are left to vectors,
/// as are contexts that tiles cannot hold.
inline void PrefixBoundsByAmx(const PrefixBlocks& prefix, const PrefixProducts* batch, std::size_t count) {
  std::size_t by_tiles = 0;
  if (ContextTiles::CanHold(prefix, batch, count)) {
    const std::size_t reach = prefix.q_offset() + AmxSteps(prefix.width) * kAmxBytes;
    if (reach <= prefix.bytes()) by_tiles = (prefix.bytes() - reach) / prefix.block_bytes() + 1;
    by_tiles = std::min(by_tiles, prefix.blocks()) / kAmxBlocks * kAmxBlocks;
  }
  if (by_tiles > 0) {
    BoundsByTiles bounds(prefix, batch, count);
    const TilesInUse tiles(count);
    for (std::size_t block = 0; block < by_tiles; block += kAmxBlocks) bounds(block);
  }
  if (by_tiles == prefix.blocks()) return;
  const PrefixBlocks rest = prefix.part(by_tiles, prefix.blocks() - by_tiles);
  PrefixProducts behind[kPrefixBatch];
  for (std::size_t q = 0; q < count; ++q) {
    behind[q] = {batch[q].context, batch[q].estimates + by_tiles * kBlockRows,
                 batch[q].radii + by_tiles * kBlockRows};
  }
  PrefixBoundsBatch<Products>(rest, behind, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif

#endif
