// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

// Scans that a query's crew shares: bit for bit those of the kernels, whichever thread computes which part.
namespace TOPKSOFTMAX_NAMESPACE {

/// logits[i] = rows[first + i]·h + bias for i < count. Reads count·d weights.
inline void scan(const Workspace& workspace, const kernels::Rows& rows, std::size_t first, std::size_t count,
                 const float* h, float* logits) {
  detail::share(workspace, count, rows.bytes(1), [&](std::size_t begin, std::size_t part) {
    kernels::scan(rows, first + begin, part, h, logits + begin);
  });
}

/// The logits of all rows for the contexts of a batch, [batch × rows.count]. Reads the rows once.
inline void scan_batch(const Workspace& workspace, const kernels::Rows& rows, const QueryBatch& batch,
                       float* logits) {
  if (batch.size() == 0) return;
  if (batch.size() == 1) return scan(workspace, rows, 0, rows.count, batch.contexts(), logits);
  detail::share(workspace, rows.count, rows.bytes(1), [&](std::size_t first, std::size_t count) {
    kernels::scan_batch(rows.part(first, count), batch.contexts(), batch.stride(), batch.size(),
                        logits + first, rows.count);
  });
}

/// logits[i] = rows[ids[i]]·h + bias for i < count. Reads count·d weights.
inline void scan_gathered(const Workspace& workspace, const kernels::Rows& rows, const TokenId* ids,
                          std::size_t count, const float* h, float* logits) {
  detail::share(workspace, count, rows.bytes(1), [&](std::size_t begin, std::size_t part) {
    kernels::scan_gathered(rows, ids + begin, part, h, logits + begin);
  });
}

/// estimates[v] and radii[v] of every row's logit, for the rows rounded up to whole blocks: see
/// kernels::prefix_bounds. Reads prefix.bytes().
inline void prefix_bounds(const Workspace& workspace, const kernels::PrefixBlocks& prefix,
                          const kernels::PrefixContext& context, float* estimates, float* radii) {
  detail::share(workspace, prefix.blocks(), prefix.block_bytes(), [&](std::size_t first, std::size_t count) {
    const std::size_t row = first * kernels::PrefixBlocks::kRows;
    kernels::prefix_bounds(prefix.part(first, count), context, estimates + row, radii + row);
  });
}

/// The same for 1 ≤ batch.size() ≤ kernels::kPrefixBatch contexts, which meet the prefixes together.
inline void prefix_bounds_batch(const Workspace& workspace, const kernels::PrefixBlocks& prefix,
                                std::span<const kernels::PrefixProducts> batch) {
  if (batch.size() == 1) {
    return prefix_bounds(workspace, prefix, batch[0].context, batch[0].estimates, batch[0].radii);
  }
  detail::share(workspace, prefix.blocks(), prefix.block_bytes(), [&](std::size_t first, std::size_t count) {
    kernels::PrefixProducts part[kernels::kPrefixBatch];
    const std::size_t row = first * kernels::PrefixBlocks::kRows;
    for (std::size_t q = 0; q < batch.size(); ++q) {
      part[q] = {batch[q].context, batch[q].estimates + row, batch[q].radii + row};
    }
    kernels::prefix_bounds_batch(prefix.part(first, count), part, batch.size());
  });
}

/// Adds to estimates[i] what the tails of rows ids[i], i < count, say: see kernels::tail_bounds. Reads
/// count·tails.row_bytes().
inline void tail_bounds(const Workspace& workspace, const kernels::PrefixTails& tails,
                        const kernels::TailContext& context, const TokenId* ids, std::size_t count,
                        float* estimates, float* radii) {
  detail::share(workspace, count, tails.row_bytes(), [&](std::size_t first, std::size_t part) {
    kernels::tail_bounds(tails, context, ids + first, part, estimates + first, radii + first);
  });
}

}  // namespace TOPKSOFTMAX_NAMESPACE
