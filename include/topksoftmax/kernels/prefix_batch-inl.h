// SPDX-License-Identifier: Apache-2.0
//
// Bounds by prefixes for several contexts, which meet one part of the rows after another.
// Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_PREFIX_BATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_PREFIX_BATCH_INL_H_
#undef TOPKSOFTMAX_KERNELS_PREFIX_BATCH_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_PREFIX_BATCH_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_bounds-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

template <class Form>
void PrefixBoundsBatch(const PrefixBlocks& prefix, const PrefixProducts* batch, std::size_t count) {
  const std::size_t part = std::max<std::size_t>(kPartBytes / prefix.block_bytes(), 1);
  for (std::size_t first = 0; first < prefix.blocks(); first += part) {
    PrefixBlocks blocks = prefix.part(first, part);
    const std::size_t row = first * kBlockRows;
    for (std::size_t q = 0; q < count; ++q) {
      PrefixBounds<Form>(blocks, batch[q].context, batch[q].estimates + row, batch[q].radii + row);
      blocks.whole_bytes = 0;  // there they are now
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
