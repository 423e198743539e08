// SPDX-License-Identifier: Apache-2.0
//
// The table of all kernels of one instruction set. Included once for every instruction set.

#if defined(TOPKSOFTMAX_KERNELS_IMPLEMENTATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPKSOFTMAX_KERNELS_IMPLEMENTATION_INL_H_
#undef TOPKSOFTMAX_KERNELS_IMPLEMENTATION_INL_H_
#else
#define TOPKSOFTMAX_KERNELS_IMPLEMENTATION_INL_H_
#endif

#include <hwy/highway.h>

#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/bounded-inl.h"
#include "topksoftmax/kernels/few-inl.h"
#include "topksoftmax/kernels/gumbels-inl.h"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/multiply-inl.h"
#include "topksoftmax/kernels/prefix_amx-inl.h"
#include "topksoftmax/kernels/prefix_batch-inl.h"
#include "topksoftmax/kernels/prefix_bounds-inl.h"
#include "topksoftmax/kernels/reduce-inl.h"
#include "topksoftmax/kernels/round-inl.h"
#include "topksoftmax/kernels/scan-inl.h"
#include "topksoftmax/kernels/squared_distance-inl.h"
#include "topksoftmax/kernels/sum-inl.h"
#include "topksoftmax/kernels/tail_bounds-inl.h"
#include "topksoftmax/kernels/transform-inl.h"
#include "topksoftmax/kernels/wta-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

/// This instruction set.
constexpr std::string_view kTarget = std::string_view(HWY_STR(HWY_NAMESPACE)).substr(2);  // of N_…

/// All kernels, those of int8 prefixes in the given form (see int8_products-inl.h), and of batches that meet
/// them in another if they have one.
template <class Form>
constexpr detail::Implementation ImplementationIn(
    std::string_view name = kTarget,
    decltype(detail::Implementation::prefix_bounds_batch) of_batches = &PrefixBoundsBatch<Form>) {
  return {
      .name = name,
      .target = kTarget,
      .scan = &Scan,
      .scan_gathered = &ScanGathered,
      .scan_batch = &ScanBatch,
      .scan_gathered_batch = &ScanGatheredBatch,
      .combine_rows = &CombineRows,
      .multiply = &Multiply,
      .argmax = &Argmax,
      .fused_scan = &FusedScan,
      .fused_scan_batch = &FusedScanBatch,
      .select = &Select,
      .fused_select = &FusedSelect,
      .kth_of_few = &KthOfFew,
      .rank_best = &RankBest,
      .max = &Max,
      .sum_exp = &SumExp,
      .add_exp = &AddExp,
      .sum = &Sum,
      .exp = &Exp,
      .prefix_bounds = &PrefixBounds<Form>,
      .prefix_bounds_batch = of_batches,
      .prefix_bounds_gathered = &PrefixBoundsGathered<Form>,
      .box_bounds = &BoxBounds<Form>,
      .tail_bounds = &TailBounds<Form>,
      .promising = &Promising,
      .leave_out_forbidden = &LeaveOutForbidden,
      .reaching = &Reaching,
      .partition = &PartitionAt,
      .transform = &TransformLogits,
      .transform_bounds = &TransformBounds,
      .sum_exp_bounds = &SumExpBounds,
      .wta_codes = &WtaCodes,
      .wta_codes_batch = &WtaCodesBatch,
      .mark_reaching = &MarkReaching,
      .squared_distance = &SquaredDistance,
      .squared_length = &SquaredLength,
      .largest_magnitude = &LargestMagnitude,
      .round_to_shorts = &RoundToShorts,
      .round_segment = &RoundSegment,
      .least_exponentials = &LeastExponentials,
      .blocks_above = &BlocksAbove,
      .ranks_of_blocks = &RanksOfBlocks,
  };
}

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#endif
