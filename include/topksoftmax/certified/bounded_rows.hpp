// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/bounds_view.hpp"
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

/// Rows whose products were bounded by their prefixes. Forbidden and biased ones have an estimate of −∞ and
/// no radius: no bound of theirs holds.
struct BoundedRows : BoundsView {
  std::span<const TokenId> blocks{};  ///< which they are blocks of; none: all rows
  std::size_t bytes_read = 0;

  std::size_t place(std::size_t i) const {
    constexpr std::size_t rows = kernels::PrefixBlocks::kRows;
    return blocks.empty() ? i : static_cast<std::size_t>(blocks[i / rows]) * rows + i % rows;
  }
};

/// Boxes that are opened for the likely rows: some in any case, and one more for so many rows.
inline constexpr std::size_t kFirstBoxes = 16;
inline constexpr std::size_t kWantedOfBox = 4;

/// Leaves forbidden rows out of those of some blocks.
inline void leave_out_forbidden(const CertifiedIndex& index, const AllowedTokens& allowed,
                                std::span<const TokenId> blocks, float* estimates, float* radii) {
  for (const TokenId block : blocks) {
    const std::size_t first = static_cast<std::size_t>(block) * kBlockRows;
    const std::size_t count = std::min(kBlockRows, index.rows() - first);
    if (index.order.is_natural()) {
      for (std::size_t r = 0; r < count; ++r) {
        if (!allowed.allows(static_cast<TokenId>(first + r))) kernels::leave_out(estimates[r], radii[r]);
      }
    } else {
      kernels::leave_out_forbidden(allowed, index.order.tokens().data() + first, count, estimates, radii);
    }
    estimates += kBlockRows;
    radii += kBlockRows;
  }
}

/// Leaves rows whose bounds do not hold out of those of some blocks.
inline void leave_out_edited(const CertifiedIndex& index, const kernels::LogitEdits& edits,
                             std::span<const TokenId> blocks, float* estimates, float* radii) {
  if (!edits.allowed.empty()) leave_out_forbidden(index, edits.allowed, blocks, estimates, radii);
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    const std::size_t place = index.order.place(edits.bias[b].id);
    const auto block = static_cast<TokenId>(place / kBlockRows);
    const auto at = std::lower_bound(blocks.begin(), blocks.end(), block);
    if (at == blocks.end() || *at != block) continue;
    const std::size_t i = static_cast<std::size_t>(at - blocks.begin()) * kBlockRows + place % kBlockRows;
    kernels::leave_out(estimates[i], radii[i]);
  }
}

/// Rows of some blocks, which ascend: the last one of all may not be full.
inline std::size_t rows_of(const kernels::PrefixBlocks& all, std::span<const TokenId> blocks) {
  const bool has_last = !blocks.empty() && static_cast<std::size_t>(blocks.back()) + 1 == all.blocks();
  return blocks.size() * kBlockRows - (has_last ? all.blocks() * kBlockRows - all.rows : 0);
}

/// Bounds the rows of some blocks, which ascend, to estimates and radii [16·blocks].
inline void bound_blocks(const BoundedQuery& bounded, std::span<const TokenId> blocks, float* estimates,
                         float* radii) {
  kernels::prefix_bounds_gathered(bounded.index.prefixes.blocks(), blocks.data(), blocks.size(),
                                  bounded.bounds.prefix, estimates, radii);
  leave_out_edited(bounded.index, bounded.query.edits, blocks, estimates, radii);
}

/// The same in the workspace, shared by the query's crew.
inline BoundedRows open_blocks(const BoundedQuery& bounded, std::span<const TokenId> blocks) {
  const kernels::PrefixBlocks& all = bounded.index.prefixes.blocks();
  const std::size_t room = blocks.size() * kBlockRows;
  auto* const estimates = bounded.scratch().opened.get<float>(2 * room);
  float* const radii = estimates + room;
  share(bounded.workspace, blocks.size(), all.block_bytes(), [&](std::size_t first, std::size_t count) {
    const std::size_t row = first * kBlockRows;
    bound_blocks(bounded, blocks.subspan(first, count), estimates + row, radii + row);
  });
  return {{estimates, radii, rows_of(all, blocks)}, blocks, blocks.size() * all.block_bytes()};
}

/// All rows, as bound() has bounded them where there are no boxes.
inline BoundedRows all_rows(const BoundedQuery& bounded) {
  return {{bounded.bounds.estimates, bounded.bounds.radii, bounded.index.rows()}};
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
  auto* const maxima = scratch.logits.get<float>(kernels::maxima_room(count));
  auto* const blocks = scratch.blocks.get<TokenId>(count + kernels::kSlack);
  const std::size_t found = kernels::promising(bounded.bounds.estimates, count, few, maxima, blocks);
  return open_blocks(bounded, {blocks, found});
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
