// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A context that meets prefixes, and the bounds that come of it [16·blocks].
struct PrefixProducts {
  kernels::PrefixContext context;
  float* estimates;
  float* radii;
};

/// Contexts of a batch that meet prefixes together at the most.
inline constexpr std::size_t kBoundBatch = 4;

/// Bytes of prefixes that stay in the second cache while all contexts of a batch meet them.
inline constexpr std::size_t kPartBytes = std::size_t{512} * 1024;

/// Bounds all rows for some contexts, which meet one part of the prefixes after another; the crew shares what
/// a single one meets. See kernels::prefix_bounds.
inline void multiply_prefixes(const Workspace& workspace, const kernels::PrefixBlocks& all,
                              std::span<const PrefixProducts> batch) {
  if (batch.size() == 1) {
    return prefix_bounds(workspace, all, batch[0].context, batch[0].estimates, batch[0].radii);
  }
  const std::size_t part = std::max<std::size_t>(kPartBytes / all.block_bytes(), 1);
  for (std::size_t first = 0; first < all.blocks(); first += part) {
    kernels::PrefixBlocks blocks = all.part(first, std::min(part, all.blocks() - first));
    const std::size_t row = first * kernels::PrefixBlocks::kRows;
    for (const PrefixProducts& products : batch) {
      kernels::prefix_bounds(blocks, products.context, products.estimates + row, products.radii + row);
      blocks.whole_bytes = 0;  // there they are now
    }
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
