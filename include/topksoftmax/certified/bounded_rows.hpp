// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/divided_bounds.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

// Rows that are bounded by their prefixes: all of them, or those of the boxes that are opened.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Rows whose products were bounded by their prefixes. Forbidden and biased ones have an estimate of −∞: no
/// bound of theirs holds.
struct BoundedRows {
  const float* estimates = nullptr;
  const float* radii = nullptr;
  std::size_t count = 0;
  std::span<const TokenId> blocks{};                          ///< which they are blocks of; none: all rows
  float threshold = -std::numeric_limits<float>::infinity();  ///< which no other row reaches
  double others = 0.0;  ///< Σ exp(logit − threshold) over these others at the most, if asked for
  std::size_t bytes_read = 0;

  std::size_t place(std::size_t i) const {
    constexpr std::size_t rows = kernels::PrefixBlocks::kRows;
    return blocks.empty() ? i : static_cast<std::size_t>(blocks[i / rows]) * rows + i % rows;
  }
};

/// Boxes that are opened for the likely rows: some in any case, and one more for so many rows.
inline constexpr std::size_t kFirstBoxes = 16;
inline constexpr std::size_t kWantedOfBox = 4;

/// Leaves rows whose bounds do not hold out of those of some blocks.
inline void leave_out_edited(const CertifiedIndex& index, const kernels::LogitEdits& edits,
                             std::span<const TokenId> blocks, float* estimates) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  if (!edits.allowed.empty()) {
    const BoundedRows rows = {.blocks = blocks};
    for (std::size_t i = 0; i < blocks.size() * kBlockRows; ++i) {
      const std::size_t place = rows.place(i);
      if (place < index.rows() && !edits.allows(index.token(place))) estimates[i] = kNever;
    }
  }
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    const std::size_t place = index.order.place(edits.bias[b].id);
    const auto block = static_cast<TokenId>(place / kBlockRows);
    const auto at = std::lower_bound(blocks.begin(), blocks.end(), block);
    if (at == blocks.end() || *at != block) continue;
    estimates[static_cast<std::size_t>(at - blocks.begin()) * kBlockRows + place % kBlockRows] = kNever;
  }
}

/// Bounds the rows of some blocks, which ascend.
inline BoundedRows open_blocks(const BoundedQuery& bounded, std::span<const TokenId> blocks) {
  const kernels::PrefixBlocks& all = bounded.index.prefixes.blocks();
  const std::size_t room = blocks.size() * kBlockRows;
  auto* const estimates = bounded.scratch().opened.get<float>(2 * room);
  float* const radii = estimates + room;
  share(bounded.workspace, blocks.size(), all.block_bytes(), [&](std::size_t first, std::size_t count) {
    kernels::prefix_bounds_gathered(all, blocks.data() + first, count, bounded.bounds.prefix,
                                    estimates + first * kBlockRows, radii + first * kBlockRows);
  });
  leave_out_edited(bounded.index, bounded.query.edits, blocks, estimates);
  const bool has_last = !blocks.empty() && static_cast<std::size_t>(blocks.back()) + 1 == all.blocks();
  const std::size_t missing = has_last ? all.blocks() * kBlockRows - all.rows : 0;
  return {.estimates = estimates,
          .radii = radii,
          .count = room - missing,
          .blocks = blocks,
          .bytes_read = blocks.size() * all.block_bytes()};
}

/// All rows, as bound() has bounded them where there are no boxes.
inline BoundedRows all_rows(const BoundedQuery& bounded) {
  return {
      .estimates = bounded.bounds.estimates, .radii = bounded.bounds.radii, .count = bounded.index.rows()};
}

/// All rows by their prefixes, in the order of the index.
inline BoundedRows every_row(const BoundedQuery& bounded) {
  if (!bounded.index.has_boxes()) return all_rows(bounded);
  const std::size_t blocks = bounded.index.prefixes.blocks().blocks();
  auto* const all = bounded.scratch().blocks.get<TokenId>(blocks);
  for (std::size_t i = 0; i < blocks; ++i) all[i] = static_cast<TokenId>(i);
  return open_blocks(bounded, {all, blocks});
}

/// Rows among which are most of the `wanted` with the largest logits.
inline BoundedRows likely_rows(const BoundedQuery& bounded, std::size_t wanted) {
  if (!bounded.index.has_boxes()) return all_rows(bounded);
  const std::size_t count = bounded.index.boxes().count();
  const std::size_t few = std::min(kFirstBoxes + wanted / kWantedOfBox, count);
  CertifiedScratch& scratch = bounded.scratch();
  auto* const maxima = scratch.logits.get<float>(count / 8 + 2 * kernels::kSlack);
  auto* const blocks = scratch.blocks.get<TokenId>(count + kernels::kSlack);
  const std::size_t found = kernels::promising(bounded.bounds.estimates, count, few, maxima, blocks);
  return open_blocks(bounded, {blocks, found});
}

/// Rows among which are all whose logits may reach a threshold.
inline BoundedRows rows_reaching(const BoundedQuery& bounded, float threshold) {
  if (!bounded.index.has_boxes()) return all_rows(bounded);
  const std::size_t count = bounded.index.boxes().count();
  auto* const blocks = bounded.scratch().blocks.get<TokenId>(divided_room(count));
  const kernels::Partition boxes =
      divide_bounds(bounded, bounded.bounds.estimates, bounded.bounds.radii, count, threshold, blocks);
  BoundedRows rows = open_blocks(bounded, {blocks, boxes.reaching});
  rows.threshold = threshold;
  // None of them reaches the threshold, which is more than the sum tells where it could not be bounded.
  rows.others =
      std::min(static_cast<double>(kBlockRows) * boxes.rest.high, static_cast<double>(bounded.index.rows()));
  return rows;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
