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
#include "topksoftmax/kernels/targets.hpp"

#if TOPKSOFTMAX_TARGET_HAS_AVX3_DL

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

/// The rows of a pair of blocks as a tile of each.
using RowTiles = std::array<const std::uint8_t*, kAmxBlocks>;

/// The codes of one pair of blocks after the other as bytes, a tile of each block a step: those of four bits,
/// then those of two. They are taken apart some steps before their tiles are loaded, for a tile waits until
/// what was stored has reached the cache.
class UnpackedCodes {
 public:
  /// Of the first `blocks` blocks.
  UnpackedCodes(const PrefixBlocks& prefix, std::size_t blocks)
      : headers_(prefix),
        int4_(prefix.int4()),
        int2_(prefix.int2()),
        int4_steps_(AmxSteps(int4_.width)),
        steps_(int4_steps_ + AmxSteps(int2_.width)),
        end_(steps_ > 0 ? blocks : 0) {
    for (std::size_t i = 0; i < kAhead; ++i) TakeNext();
  }

  /// The tiles of the next step, of both blocks.
  HWY_INLINE RowTiles Next() {
    TakeNext();
    const std::size_t kept = asked_++ % kKept;
    return {tiles_[0][kept], tiles_[1][kept]};
  }

 private:
  static constexpr std::size_t kAhead = 3;
  static constexpr std::size_t kKept = 4;
  static_assert(kKept > kAhead);

  HWY_INLINE void TakeNext() {
    if (block_ >= end_) return;
    TOPKSOFTMAX_UNROLL
    for (std::size_t b = 0; b < kAmxBlocks; ++b) {
      const std::byte* const block = headers_[block_ + b].begin;
      std::uint8_t* const to = tiles_[b][taken_ % kKept];
      if (step_ < int4_steps_) {
        Take<4>(block, int4_, step_, to);
      } else {
        Take<2>(block, int2_, step_ - int4_steps_, to);
      }
    }
    ++taken_;
    if (++step_ < steps_) return;
    step_ = 0;
    block_ += kAmxBlocks;
  }

  template <std::size_t kBits>
  static HWY_INLINE void Take(const std::byte* block, const PrefixCodes& codes, std::size_t step,
                              std::uint8_t* to) {
    using Layout = CodeLayout<kBits>;
    const hn::ScalableTag<std::uint8_t> bytes;
    const hn::ScalableTag<std::uint16_t> words;
    constexpr std::size_t kGroups = kAmxWidth / Layout::kInGroup;
    const auto mask = hn::Set(bytes, static_cast<std::uint8_t>(Layout::kLargest));
    const std::size_t groups = std::min(kGroups, codes.width / Layout::kInGroup - step * kGroups);
    const auto* from = reinterpret_cast<const std::uint8_t*>(block + codes.offset) + step * kGroups * kLine;
    for (std::size_t g = 0; g < groups; ++g, from += kLine) {
      const auto u = hn::BitCast(words, hn::LoadU(bytes, from));
      TOPKSOFTMAX_UNROLL
      for (std::size_t s = 0; s < Layout::kInByte; ++s, to += kAmxRowBytes) {
        const auto shifted = hn::BitCast(bytes, hn::ShiftRightSame(u, static_cast<int>(kBits * s)));
        hn::Store(hn::And(shifted, mask), bytes, to);
      }
    }
  }

  BlockHeaders headers_;
  PrefixCodes int4_;
  PrefixCodes int2_;
  std::size_t int4_steps_;
  std::size_t steps_;  ///< of a pair
  std::size_t end_;
  std::size_t block_ = 0;  ///< of the step that is taken apart next, …
  std::size_t step_ = 0;   ///< … and which one of its pair that is
  std::size_t taken_ = 0;
  std::size_t asked_ = 0;
  HWY_ALIGN std::uint8_t tiles_[kAmxBlocks][kKept][kAmxBytes] = {};
};

/// Bounds of two blocks at a time.
class BoundsByTiles {
 public:
  /// Of the first `blocks` blocks, an even number.
  BoundsByTiles(const PrefixBlocks& prefix, const PrefixProducts* batch, std::size_t count,
                std::size_t blocks)
      : headers_(prefix),
        width_(prefix.width),
        int4_(prefix.int4()),
        int2_(prefix.int2()),
        contexts_(prefix, batch, count),
        unpacked_(prefix, blocks),
        batch_(batch),
        count_(count),
        blocks_(blocks) {
    for (std::size_t q = 0; q < count; ++q) {
      const PrefixContext& context = batch[q].context;
      centres_of_int4_[q] = CodeLayout<4>::Centre(context.int4, int4_.width);
      centres_of_int2_[q] = CodeLayout<2>::Centre(context.int2, int2_.width);
    }
  }

  /// By tiles in use. Sums are looked at when the next ones have been begun: they must reach the cache too.
  HWY_INLINE void operator()() {
    for (std::size_t block = 0; block < blocks_; block += kAmxBlocks) {
      Add(block);
      if (block > 0) Store(block - kAmxBlocks);
    }
    Store(blocks_ - kAmxBlocks);
  }

 private:
  /// The sums of a pair of blocks, by the numbers of its blocks.
  struct PairSums {
    TileSums int8[kAmxBlocks];
    TileSums int4[kAmxBlocks];
    TileSums int2[kAmxBlocks];
  };

  PairSums& SumsOf(std::size_t block) { return sums_[block / kAmxBlocks % 2]; }

  /// Adds up the products of tiles of contexts, from first_step to last_step, and of rows, which
  /// next_rows(step) is asked for one after the other.
  template <class NextRows>
  HWY_INLINE void Sum(std::size_t first_step, std::size_t last_step, const NextRows& next_rows,
                      TileSums* sums) {
    ZeroTile<kSumTile>();
    ZeroTile<kSumTile + 1>();
    for (std::size_t step = first_step; step < last_step; ++step) {
      const RowTiles rows = next_rows(step);
      LoadTile<kContextTile>(contexts_.Step(step));
      LoadTile<kRowTile>(rows[0]);
      MultiplyTiles<kSumTile, kContextTile, kRowTile>();
      LoadTile<kRowTile + 1>(rows[1]);
      MultiplyTiles<kSumTile + 1, kContextTile, kRowTile + 1>();
    }
    StoreTile<kSumTile>(sums[0].values);
    StoreTile<kSumTile + 1>(sums[1].values);
  }

  HWY_INLINE void Add(std::size_t block) {
    PairSums& sums = SumsOf(block);
    const std::uint8_t* const q[kAmxBlocks] = {headers_[block].q, headers_[block + 1].q};
    const auto int8_rows = [&](std::size_t step) HWY_ATTR {
      return RowTiles{q[0] + step * kAmxBytes, q[1] + step * kAmxBytes};
    };
    const auto code_rows = [&](std::size_t /*step*/) HWY_ATTR { return unpacked_.Next(); };
    const std::size_t int4 = AmxSteps(width_);
    const std::size_t int2 = int4 + AmxSteps(int4_.width);
    Sum(0, int4, int8_rows, sums.int8);
    if (int4_.width > 0) Sum(int4, int2, code_rows, sums.int4);
    if (int2_.width > 0) Sum(int2, int2 + AmxSteps(int2_.width), code_rows, sums.int2);
  }

  /// 2·Σ u·n less what all rows have too much of it.
  HWY_INLINE void Scaled(const BlockHeader& header, const PrefixCodes& codes, float scale,
                         std::int32_t centre, const TileSums& sums, std::size_t q,
                         FloatVec (&products)[kBlockVectors]) const {
    if (codes.width == 0) {
      products[0] = hn::Zero(FloatTag());
      return;
    }
    const IntVec dots[kBlockVectors] = {hn::Sub(hn::ShiftLeft<1>(sums.of(q)), hn::Set(IntTag(), centre))};
    ScaleCodes(header, codes.scale_offset, scale, dots, products);
  }

  /// Makes bounds of the sums of a pair of blocks.
  HWY_INLINE void Store(std::size_t block) {
    static_assert(kBlockVectors == 1);
    const PairSums& sums = SumsOf(block);
    for (std::size_t b = 0; b < kAmxBlocks; ++b) {
      const BlockHeader header = headers_[block + b];
      const std::size_t row = (block + b) * kBlockRows;
      for (std::size_t q = 0; q < count_; ++q) {
        const PrefixContext& context = batch_[q].context;
        const ContextFactors factors(context);
        const IntVec dots[1] = {hn::Add(sums.int8[b].of(q), hn::Set(IntTag(), contexts_.start(q)))};
        float* const estimates = batch_[q].estimates + row;
        float* const radii = batch_[q].radii + row;
        if (int4_.width + int2_.width == 0) {
          StoreBounds(header, factors, dots, estimates, radii);
          continue;
        }
        FloatVec by_int4[kBlockVectors];
        FloatVec by_int2[kBlockVectors];
        Scaled(header, int4_, context.int4.scale, centres_of_int4_[q], sums.int4[b], q, by_int4);
        Scaled(header, int2_, context.int2.scale, centres_of_int2_[q], sums.int2[b], q, by_int2);
        StoreBounds(header, factors, context.code_radius, dots, by_int4, by_int2, estimates, radii);
      }
    }
  }

  BlockHeaders headers_;
  std::size_t width_;
  PrefixCodes int4_;
  PrefixCodes int2_;
  ContextTiles contexts_;
  UnpackedCodes unpacked_;
  const PrefixProducts* batch_;
  std::size_t count_;
  std::size_t blocks_;
  std::int32_t centres_of_int4_[kPrefixBatch];
  std::int32_t centres_of_int2_[kPrefixBatch];
  PairSums sums_[2];
};

/// Bytes of a block with codes times contexts from which on tiles are faster than vectors: to take
/// codes apart costs as much for a few contexts as for many.
constexpr std::size_t kWorthTiles = 4096;

/// The same bounds as PrefixBoundsBatch's. The last step of a block's int8 coordinates may read what lies
/// behind them, which meets zeros; blocks that would read what is behind the last block are left to vectors,
/// as are contexts that tiles cannot hold.
inline void PrefixBoundsByAmx(const PrefixBlocks& prefix, const PrefixProducts* batch, std::size_t count) {
  std::size_t by_tiles = 0;
  const bool is_worth_it = prefix.code_width() == 0 || count * prefix.block_bytes() >= kWorthTiles;
  if (is_worth_it && ContextTiles::CanHold(prefix, batch, count)) {
    const std::size_t reach = prefix.q_offset() + AmxSteps(prefix.width) * kAmxBytes;
    if (reach <= prefix.bytes()) by_tiles = (prefix.bytes() - reach) / prefix.block_bytes() + 1;
    by_tiles = std::min(by_tiles, prefix.blocks()) / kAmxBlocks * kAmxBlocks;
  }
  if (by_tiles > 0) {
    BoundsByTiles bounds(prefix, batch, count, by_tiles);
    const TilesInUse tiles(count);
    bounds();
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
