// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "topksoftmax/certified/bounded_rows.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/bounds_view.hpp"
#include "topksoftmax/certified/divided_bounds.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

// Which rows may reach a threshold, by their prefixes. Where boxes are opened for that, the thread that
// bounds some rows looks through them too: only what reaches the threshold leaves its caches.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Rows whose logits may reach a threshold, by their prefixes: in the workspace until others are looked for.
struct ReachingRows {
  TokenId* places = nullptr;   ///< of the rows in the index, ascending
  float* estimates = nullptr;  ///< of their products
  float* radii = nullptr;
  std::size_t count = 0;
  float threshold = 0.0F;
  kernels::SumBounds rest{0.0, 0.0};  ///< of Σ exp(logit − threshold) over all other rows, if asked for
  std::size_t bounded = 0;            ///< rows that were bounded to find them
  std::size_t bytes_read = 0;

  std::size_t place(std::size_t i) const { return static_cast<std::size_t>(places[i]); }
  BoundsView bounds() const { return {estimates, radii, count}; }

  /// Makes row i one of those that have been bounded.
  void put(std::size_t i, const BoundedRows& from, std::size_t at) const {
    places[i] = static_cast<TokenId>(from.place(at));
    estimates[i] = from.estimates[at];
    radii[i] = from.radii[at];
  }

  /// Moves row `from` to `to`, which is no later.
  void move(std::size_t from, std::size_t to) const {
    places[to] = places[from];
    estimates[to] = estimates[from];
    radii[to] = radii[from];
  }
};

/// Blocks whose rows are bounded before those are picked that reach a threshold: the bounds stay in the first
/// cache. The sums of the others are added up in this order, whoever made them.
inline constexpr std::size_t kOpenedAtOnce = 64;
inline constexpr std::size_t kReachingRoom = kOpenedAtOnce * kBlockRows + kernels::kSlack;

/// Memory for so many rows.
inline ReachingRows room_for_reaching(const BoundedQuery& bounded, std::size_t count, float threshold) {
  auto* const places = bounded.scratch().reaching.get<TokenId>(count);
  auto* const bounds = bounded.scratch().survivors.get<float>(2 * count);
  return {.places = places, .estimates = bounds, .radii = bounds + count, .threshold = threshold};
}

/// Those of all rows, which have been bounded already.
inline ReachingRows all_reaching(const BoundedQuery& bounded, float threshold) {
  const BoundedRows all = all_rows(bounded);
  auto* const ids = bounded.scratch().ids.get<TokenId>(divided_room(all.count));
  const kernels::Partition divided = divide_bounds(bounded, all, threshold, ids);
  ReachingRows rows = room_for_reaching(bounded, divided.reaching, threshold);
  rows.count = divided.reaching;
  rows.rest = divided.rest;
  for (std::size_t i = 0; i < rows.count; ++i) rows.put(i, all, static_cast<std::size_t>(ids[i]));
  return rows;
}

/// Bounds the rows of at most kOpenedAtOnce blocks, which ascend, and puts those that reach the threshold of
/// `rows` there, from row `begin` on, where there is room for kReachingRoom.
inline kernels::Partition put_reaching(const BoundedQuery& bounded, std::span<const TokenId> blocks,
                                       const ReachingRows& rows, std::size_t begin) {
  constexpr std::size_t kMost = kOpenedAtOnce * kBlockRows;
  float bounds[2 * kMost];
  float transformed[2 * kMost];
  bound_blocks(bounded, blocks, bounds, bounds + kMost);
  const std::size_t count = rows_of(bounded.index.prefixes.blocks(), blocks);
  const BoundedRows opened = {{bounds, bounds + kMost, count}, blocks};
  TokenId* const ids = rows.places + begin;
  const kernels::Partition divided = divide_part(bounded, opened, rows.threshold, transformed, ids);
  for (std::size_t i = 0; i < divided.reaching; ++i) {
    rows.put(begin + i, opened, static_cast<std::size_t>(ids[i]));
  }
  return divided;
}

/// Those of the rows in boxes that reach the threshold: these are opened.
inline ReachingRows opened_reaching(const BoundedQuery& bounded, float threshold) {
  const kernels::PrefixBlocks& prefixes = bounded.index.prefixes.blocks();
  const std::size_t count = bounded.index.boxes().count();
  CertifiedScratch& scratch = bounded.scratch();
  auto* const blocks = scratch.blocks.get<TokenId>(divided_room(count));
  const BoundsView of_boxes = {bounded.bounds.estimates, bounded.bounds.radii, count};
  const kernels::Partition boxes = divide_bounds(bounded, of_boxes, threshold, blocks);
  const std::size_t opened = boxes.reaching;

  const std::size_t parts = (opened + kOpenedAtOnce - 1) / kOpenedAtOnce;
  ReachingRows rows = room_for_reaching(bounded, parts * kReachingRoom, threshold);
  auto* const divided = scratch.divided.get<kernels::Partition>(parts);
  share(bounded.workspace, parts, kOpenedAtOnce * prefixes.block_bytes(),
        [&](std::size_t first, std::size_t some) {
          for (std::size_t part = first; part < first + some; ++part) {
            const std::size_t begin = part * kOpenedAtOnce;
            divided[part] = put_reaching(bounded, {blocks + begin, std::min(kOpenedAtOnce, opened - begin)},
                                         rows, part * kReachingRoom);
          }
        });
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = part * kReachingRoom;
    for (std::size_t i = 0; i < divided[part].reaching; ++i) rows.move(begin + i, rows.count++);
    rows.rest.low += divided[part].rest.low;
    rows.rest.high += divided[part].rest.high;
  }
  rows.rest.high += static_cast<double>(kBlockRows) * boxes.rest.high;
  rows.bounded = rows_of(prefixes, {blocks, opened});
  rows.bytes_read = opened * prefixes.block_bytes();
  return rows;
}

/// All rows whose logits may reach a threshold. Forbidden and biased ones are not among them: no bound of
/// theirs holds.
inline ReachingRows rows_reaching(const BoundedQuery& bounded, float threshold) {
  ReachingRows rows =
      bounded.index.has_boxes() ? opened_reaching(bounded, threshold) : all_reaching(bounded, threshold);
  // No other row reaches the threshold, which is more than the sum tells where it could not be bounded.
  rows.rest.high = std::min(rows.rest.high, static_cast<double>(bounded.index.rows()));
  return rows;
}

/// Leaves the rows that reach a threshold which is no lower than theirs.
inline void keep_reaching(const BoundedQuery& bounded, float threshold, ReachingRows& rows) {
  auto* const kept = bounded.scratch().ids.get<TokenId>(divided_room(rows.count));
  const auto [count, dropped] = divide_bounds(bounded, rows.bounds(), threshold, kept);
  for (std::size_t i = 0; i < count; ++i) rows.move(static_cast<std::size_t>(kept[i]), i);
  const double shift = std::exp(static_cast<double>(rows.threshold) - static_cast<double>(threshold));
  rows.rest = {rows.rest.low * shift + dropped.low, rows.rest.high * shift + dropped.high};
  rows.count = count;
  rows.threshold = threshold;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
