// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/panels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_boxes.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/kernels/wta_bands.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels::detail {

/// The hot loops, compiled for one instruction set: what each does is said in kernels.hpp.
struct Implementation {
  std::string_view name;    ///< the instruction set
  std::string_view target;  ///< the same without what no logit depends on: those of one target are equal

  void (*scan)(const Rows& rows, std::size_t first, std::size_t count, const float* h, float* logits);
  void (*scan_gathered)(const Rows& rows, const TokenId* ids, std::size_t count, const float* h,
                        float* logits);
  void (*scan_batch)(const Rows& rows, const float* contexts, std::size_t stride, std::size_t batch,
                     float* logits, std::size_t logits_stride);
  void (*scan_gathered_batch)(const Rows& rows, const TokenId* ids, std::size_t count, const float* contexts,
                              std::size_t stride, std::size_t batch, float* logits);
  void (*combine_rows)(const Rows& rows, const float* x, float* sums);
  void (*multiply)(const float* x, std::size_t stride, std::size_t count, const Panels& m, float* products,
                   std::size_t products_stride);
  std::size_t (*argmax)(const Rows& rows, const float* h);
  void (*fused_scan)(const Rows& rows, const float* h, const LogitEdits& edits, TopKHeap& heap,
                     LogSumExp* sum);
  void (*fused_scan_batch)(const Rows& rows, const float* contexts, std::size_t stride, std::size_t batch,
                           const LogitEdits* edits, TopKHeap* heaps, LogSumExp* sums);
  void (*select)(const float* logits, const TokenId* ids, std::size_t count, TopKHeap& heap);
  void (*fused_select)(const float* products, const float* bias, std::size_t count, TopKHeap& heap,
                       LogSumExp* sum);
  float (*kth_of_few)(const float* values, std::size_t count, std::size_t k);
  std::size_t (*rank_best)(const float* logits, const TokenId* ids, std::size_t count, std::size_t k,
                           ScoredToken* best);
  float (*max)(const float* values, std::size_t count);
  double (*sum_exp)(const float* values, std::size_t count, float max);
  void (*add_exp)(const float* values, std::size_t count, LogSumExp& sum);
  float (*sum)(const float* values, std::size_t count);
  void (*exp)(const float* values, std::size_t count, float shift, float* exponentials);
  void (*prefix_bounds)(const PrefixBlocks& prefix, const PrefixContext& context, float* estimates,
                        float* radii);
  void (*prefix_bounds_batch)(const PrefixBlocks& prefix, const PrefixProducts* batch, std::size_t count);
  void (*prefix_bounds_gathered)(const PrefixBlocks& prefix, const TokenId* blocks, std::size_t count,
                                 const PrefixContext& context, float* estimates, float* radii);
  void (*box_bounds)(const PrefixBoxes& boxes, const PrefixContext& context, const std::int16_t* magnitudes,
                     float* estimates, float* radii);
  void (*tail_bounds)(const PrefixTails& tails, const TailContext& context, const TokenId* ids,
                      std::size_t count, float* estimates, float* radii);
  std::size_t (*promising)(const float* values, std::size_t count, std::size_t wanted, float* maxima,
                           TokenId* ids);
  void (*leave_out_forbidden)(const AllowedTokens& allowed, const TokenId* tokens, std::size_t count,
                              float* estimates, float* radii);
  std::size_t (*reaching)(const float* estimates, const float* radii, std::size_t count, float threshold,
                          TokenId* ids);
  Partition (*partition)(const float* estimates, const float* radii, std::size_t count, float threshold,
                         TokenId* ids);
  void (*transform)(const LogitTransform& transform, float* values, std::size_t count);
  void (*transform_bounds)(const LogitTransform& transform, const float* estimates, const float* radii,
                           std::size_t count, float* logit_estimates, float* logit_radii);
  SumBounds (*sum_exp_bounds)(const float* estimates, const float* radii, std::size_t count, float shift);
  void (*wta_codes)(const WtaBands& bands, const float* x, std::uint32_t* codes);
  void (*wta_codes_batch)(const WtaBands& bands, const float* columns, std::uint32_t* codes);
  std::size_t (*mark_reaching)(const std::uint16_t* hits, std::size_t words, std::uint16_t threshold,
                               std::uint64_t* marks);
  float (*squared_distance)(const float* a, const float* b, std::size_t dim);
  float (*squared_length)(const float* x, std::size_t dim);
  float (*largest_magnitude)(const float* x, std::size_t count);
  void (*round_to_shorts)(const float* x, std::size_t count, float inverse, float most, std::int16_t* n);
  float (*round_segment)(const float* x, float inverse, std::int8_t* n);
  void (*least_exponentials)(std::uint64_t key, const TokenId* ids, std::size_t count, double* least);
  std::size_t (*blocks_above)(std::uint64_t key, std::size_t first, std::size_t count, std::uint64_t lowest,
                              std::uint64_t* found);
  void (*ranks_of_blocks)(std::uint64_t key, const std::uint64_t* blocks, std::size_t count,
                          std::size_t stride, double* least, std::uint64_t* places);
};

#if defined(TOPKSOFTMAX_HEADER_ONLY)  // see header_only-inl.h
inline std::span<const Implementation> implementations();
inline const Implementation& active();
#else
/// Every implementation that this processor can run, the fastest first.
TOPKSOFTMAX_EXPORT std::span<const Implementation> implementations();

/// The fastest of them, which the library uses.
TOPKSOFTMAX_EXPORT const Implementation& active();
#endif

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels::detail
