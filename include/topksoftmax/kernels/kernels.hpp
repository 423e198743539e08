// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/kernels/panels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_boxes.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/kernels/wta_bands.hpp"
#include "topksoftmax/types.hpp"

// The hot loops, for the fastest instruction set that this processor has.
//
// Within one instruction set a row's dot product is always summed in the same order: one accumulator of N
// lanes, lane l taking elements l, l+N, l+2N, … by fused multiply-add (multiply, then add, where the target
// has none), then lanes folded by halves. So a row has the same logit, bit for bit, whichever kernel
// computes it. Between instruction sets N differs, and with it the rounding: to first order, a
// product with its bias is within (d + 2)·2⁻²⁴·(Σ|w_j·h_j| + |b|) of the real one in all.
//
// The logit of a row is rows.transform of that product and its bias. Every logit that comes out is finite:
// too large becomes ±max, NaN becomes −max. Vectors need no alignment.
namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// logits[i] = rows[first + i]·h + bias for i < count. Reads count·d weights.
inline void scan(const Rows& rows, std::size_t first, std::size_t count, const float* h, float* logits) {
  detail::active().scan(rows, first, count, h, logits);
}

/// logits[i] = rows[ids[i]]·h + bias for i < count. Reads count·d weights.
inline void scan_gathered(const Rows& rows, const TokenId* ids, std::size_t count, const float* h,
                          float* logits) {
  detail::active().scan_gathered(rows, ids, count, h, logits);
}

/// logits[q·logits_stride + i] = rows[i]·h_q + bias for every row and `batch` contexts, h_q at contexts +
/// q·stride, reading the rows once. Bit for bit those of scan.
inline void scan_batch(const Rows& rows, const float* contexts, std::size_t stride, std::size_t batch,
                       float* logits, std::size_t logits_stride) {
  detail::active().scan_batch(rows, contexts, stride, batch, logits, logits_stride);
}

/// The same to logits [batch × rows.count].
inline void scan_batch(const Rows& rows, const float* contexts, std::size_t stride, std::size_t batch,
                       float* logits) {
  scan_batch(rows, contexts, stride, batch, logits, rows.count);
}

/// logits[q·count + i] = rows[ids[i]]·h_q + bias for i < count and `batch` contexts, h_q at contexts +
/// q·stride, reading the rows once. Bit for bit those of scan_gathered.
inline void scan_gathered_batch(const Rows& rows, const TokenId* ids, std::size_t count,
                                const float* contexts, std::size_t stride, std::size_t batch, float* logits) {
  detail::active().scan_gathered_batch(rows, ids, count, contexts, stride, batch, logits);
}

/// sums[i] = Σ_j x[j] · rows[j][i] for i < dim, which is a multiple of kSlack: rows are added up, not
/// multiplied by a context, so nothing is folded. Within combine_roundings(count)·2⁻²⁴·Σ_j |x[j] ·
/// rows[j][i]|, to first order, of the real sums. No bias; rows of int8 have no scales, and none are of
/// blocks. Reads count·dim weights.
inline void combine_rows(const Rows& rows, const float* x, float* sums) {
  detail::active().combine_rows(rows, x, sums);
}

/// products[q·products_stride + i] = Σ_j x[q·stride + j] · m[j][i] for q < count and i < m.columns. Within
/// combine_roundings(m.rows)·2⁻²⁴·Σ_j |x[j] · m[j][i]|, to first order, of the real sums, and the same for a
/// vector whatever others are multiplied with it. Cost: count·rows·columns multiply-adds; m is read once.
inline void multiply(const float* x, std::size_t stride, std::size_t count, const Panels& m, float* products,
                     std::size_t products_stride) {
  detail::active().multiply(x, stride, count, m, products, products_stride);
}

/// The row with the largest rows[i]·h + bias, the lowest of equals. Reads V·d weights.
inline std::size_t argmax(const Rows& rows, const float* h) {
  return detail::active().argmax(rows, h);
}

/// Scan, edits, top-k and (if `sum` is not null) log-sum-exp in one pass: at most 512 logits are kept at
/// a time, 64 under a mask. Blocks of 64 rows that are wholly forbidden are not read.
inline void fused_scan(const Rows& rows, const float* h, const LogitEdits& edits, TopKHeap& heap,
                       LogSumExp* sum) {
  detail::active().fused_scan(rows, h, edits, heap, sum);
}

/// The same for `batch` contexts, context q at contexts + q·stride, with edits[q], heaps[q] and sums[q]
/// (`sums` may be null), reading the rows once. Answers are bit for bit those of fused_scan. Blocks that are
/// wholly forbidden to all are not read.
inline void fused_scan_batch(const Rows& rows, const float* contexts, std::size_t stride, std::size_t batch,
                             const LogitEdits* edits, TopKHeap* heaps, LogSumExp* sums) {
  detail::active().fused_scan_batch(rows, contexts, stride, batch, edits, heaps, sums);
}

/// Pushes count logits; the i-th is token ids[i], or token i where ids is null.
inline void select(const float* logits, const TokenId* ids, std::size_t count, TopKHeap& heap) {
  detail::active().select(logits, ids, count, heap);
}

/// Bias, top-k and (if `sum` is not null) log-sum-exp of count products w·h in one pass that writes
/// nothing: token i has the logit products[i] + bias[i] (null: no bias). What fused_scan does, for products
/// that are there already: bit for bit what it makes of the same logits.
inline void fused_select(const float* products, const float* bias, std::size_t count, TopKHeap& heap,
                         LogSumExp* sum) {
  detail::active().fused_select(products, bias, count, heap, sum);
}

/// The k-th largest, 1 ≤ k ≤ count, of count ≤ kFew values. Cost: count²/lanes.
inline float kth_of_few(const float* values, std::size_t count, std::size_t k) {
  return detail::active().kth_of_few(values, count, k);
}

/// The k best of count tokens, no id twice, best first, those with a logit of −∞ left out; returns how many
/// these are. best [k]. Equal to what a TopKHeap keeps, which takes longer: for small k all tokens are looked
/// at by vectors, and few are ranked.
inline std::size_t rank_best(const float* logits, const TokenId* ids, std::size_t count, std::size_t k,
                             ScoredToken* best) {
  return detail::active().rank_best(logits, ids, count, k, best);
}

/// The largest of count values, −∞ for none.
inline float max(const float* values, std::size_t count) {
  return detail::active().max(values, count);
}

/// Σ exp(values[i] − max) for i < count.
inline double sum_exp(const float* values, std::size_t count, float max) {
  return detail::active().sum_exp(values, count, max);
}

/// log Σ exp(values[i]) for i < count; −∞ for none, and where all are −∞.
inline double log_sum_exp(const float* values, std::size_t count) {
  const float largest = max(values, count);
  if (largest == -std::numeric_limits<float>::infinity()) return static_cast<double>(largest);
  return static_cast<double>(largest) + std::log(sum_exp(values, count, largest));
}

/// Adds values i < count to a sum, which does not depend on their order or on what they are added with. Takes
/// twice as long as sum_exp.
inline void add_exp(const float* values, std::size_t count, LogSumExp& sum) {
  detail::active().add_exp(values, count, sum);
}

/// Σ values[i] for i < count, a multiple of kReadBlock: as little work for a read as there can be, so that
/// only the memory limits its speed. Within count·2⁻²⁴·Σ|values[i]| of the real sum.
inline float sum(const float* values, std::size_t count) {
  return detail::active().sum(values, count);
}

/// exponentials[i] = exp(values[i] − shift) for i < count; may be done in place.
inline void exp(const float* values, std::size_t count, float shift, float* exponentials) {
  detail::active().exp(values, count, shift, exponentials);
}

/// estimates[v] and radii[v] of every row's logit (see PrefixBlocks), for the rows rounded up to whole
/// blocks: estimate = bias + scale·context.scale·Σ q_j·n_j, radius = row's radius · context.radius and the
/// roundings. Reads prefix.bytes().
inline void prefix_bounds(const PrefixBlocks& prefix, const PrefixContext& context, float* estimates,
                          float* radii) {
  detail::active().prefix_bounds(prefix, context, estimates, radii);
}

/// The same for count ≤ kPrefixBatch contexts, bit for bit, reading the prefixes once.
inline void prefix_bounds_batch(const PrefixBlocks& prefix, const PrefixProducts* batch, std::size_t count) {
  detail::active().prefix_bounds_batch(prefix, batch, count);
}

/// The same as prefix_bounds for `count` blocks only, one after the other: estimates[16·i + r] of row r of
/// block blocks[i]. Reads count·prefix.block_bytes().
inline void prefix_bounds_gathered(const PrefixBlocks& prefix, const TokenId* blocks, std::size_t count,
                                   const PrefixContext& context, float* estimates, float* radii) {
  detail::active().prefix_bounds_gathered(prefix, blocks, count, context, estimates, radii);
}

/// estimates[i] and radii[i] of every box (see PrefixBoxes), rounded up to whole blocks of them: no row of
/// the box has a logit above estimate + radius. magnitudes[j] = |n_j|. Reads boxes.bytes().
inline void box_bounds(const PrefixBoxes& boxes, const PrefixContext& context, const std::int16_t* magnitudes,
                       float* estimates, float* radii) {
  detail::active().box_bounds(boxes, context, magnitudes, estimates, radii);
}

/// Adds to estimates[i], those of the prefixes of rows ids[i], i < count, scale·context.scale·Σ q_j·n_j of
/// their tails (see PrefixTails), the sum in exact integers; radii[i] = row's radius · context.radius and the
/// roundings. Reads count·tails.row_bytes().
inline void tail_bounds(const PrefixTails& tails, const TailContext& context, const TokenId* ids,
                        std::size_t count, float* estimates, float* radii) {
  detail::active().tail_bounds(tails, context, ids, count, estimates, radii);
}

/// Scratch that promising() takes for so many values.
constexpr std::size_t maxima_room(std::size_t count) {
  return count / 8 + 2 * kSlack;
}

/// Ids of all values from some number on, ascending, which is chosen so that these are at least `wanted`,
/// and few more unless many are equal; none if too few values are finite, which may be up to eight times
/// `wanted`. ids [count + kSlack], maxima [maxima_room(count)] is scratch. Cheaper than a heap, and hardly
/// dearer for many than for few.
inline std::size_t promising(const float* values, std::size_t count, std::size_t wanted, float* maxima,
                             TokenId* ids) {
  return detail::active().promising(values, count, wanted, maxima, ids);
}

/// Makes the bounds of rows whose tokens are forbidden −∞, as leave_out() does: row i < count is tokens[i].
/// The mask is not empty.
inline void leave_out_forbidden(const AllowedTokens& allowed, const TokenId* tokens, std::size_t count,
                                float* estimates, float* radii) {
  detail::active().leave_out_forbidden(allowed, tokens, count, estimates, radii);
}

/// The i < count for which estimates[i] + radii[i] ≥ threshold (or is NaN), ascending; returns how
/// many. ids [count + kSlack].
inline std::size_t reaching(const float* estimates, const float* radii, std::size_t count, float threshold,
                            TokenId* ids) {
  return detail::active().reaching(estimates, radii, count, threshold, ids);
}

/// The same, and proven bounds, as sum_exp_bounds gives them, of what the others sum up to.
inline Partition partition(const float* estimates, const float* radii, std::size_t count, float threshold,
                           TokenId* ids) {
  return detail::active().partition(estimates, radii, count, threshold, ids);
}

/// The logits of count products in place, as scans compute them; −∞ stays so.
inline void transform(const LogitTransform& transform, float* values, std::size_t count) {
  detail::active().transform(transform, values, count);
}

/// Bounds of the logits of products in estimates[i] ± radii[i], i < count, as kernels compute them:
/// logit_estimates[i] ± logit_radii[i], the upper one tight, the lower one as if the slope were the scale
/// everywhere. An estimate of −∞ stays so, and NaN stays NaN. Not in place.
inline void transform_bounds(const LogitTransform& transform, const float* estimates, const float* radii,
                             std::size_t count, float* logit_estimates, float* logit_radii) {
  detail::active().transform_bounds(transform, estimates, radii, count, logit_estimates, logit_radii);
}

/// Proven bounds of Σ exp(x_i − shift) over numbers x_i in estimates[i] ± radii[i]: the upper one within 8
/// % of Σ exp(estimates[i] + radii[i] − shift), the lower one e^(−2·largest radius) of that, blockwise. Where
/// estimates[i] + radii[i] exceed shift + 87 the upper bound need not hold, but is above 10³⁷, or infinite.
inline SumBounds sum_exp_bounds(const float* estimates, const float* radii, std::size_t count, float shift) {
  return detail::active().sum_exp_bounds(estimates, radii, count, shift);
}

/// codes[w] of one vector x for the bands, rounded up to whole groups (see WtaBands). Looks at
/// bands·units·K values.
inline void wta_codes(const WtaBands& bands, const float* x, std::uint32_t* codes) {
  detail::active().wta_codes(bands, x, codes);
}

/// codes[w·kGroup + i] of kGroup vectors, value j of the i-th at columns[j·kGroup + i]. The same codes, at
/// far less a vector: a position is read once for all of them and nothing is gathered.
inline void wta_codes_batch(const WtaBands& bands, const float* columns, std::uint32_t* codes) {
  detail::active().wta_codes_batch(bands, columns, codes);
}

/// Sets the bits i < 64·words of marks for which hits[i] ≥ threshold; those that are set stay so. Returns
/// how many are set then.
inline std::size_t mark_reaching(const std::uint16_t* hits, std::size_t words, std::uint16_t threshold,
                                 std::uint64_t* marks) {
  return detail::active().mark_reaching(hits, words, threshold, marks);
}

/// ‖a − b‖² of two vectors [dim], with a relative error of at most (dim + 3)·2⁻²⁴.
inline float squared_distance(const float* a, const float* b, std::size_t dim) {
  return detail::active().squared_distance(a, b, dim);
}

/// ‖x‖² of a vector [dim], with a relative error of at most (dim + 3)·2⁻²⁴, but for what is smaller than
/// floats can be.
inline float squared_length(const float* x, std::size_t dim) {
  return detail::active().squared_length(x, dim);
}

/// The largest |x[j]|, j < count, but for NaN; 0 for none.
inline float largest_magnitude(const float* x, std::size_t count) {
  return detail::active().largest_magnitude(x, count);
}

/// n[j] = x[j]·inverse rounded to a whole number less than 0.51 away, j < count, but no further than most <
/// 2¹⁵ from 0; NaN becomes −most.
inline void round_to_shorts(const float* x, std::size_t count, float inverse, float most, std::int16_t* n) {
  detail::active().round_to_shorts(x, count, inverse, most, n);
}

/// The same for a segment of a CodeContext, within ± kLargest; returns Σ_j (x[j]·inverse − n[j])², with a
/// relative error of at most 2⁻¹⁸.
inline float round_segment(const float* x, float inverse, std::int8_t* n) {
  return detail::active().round_segment(x, inverse, n);
}

/// least[i] is no more than the exponential that a key gives token ids[i], i < count (see TokenGumbels), and
/// hardly less where that is small: what its series begins with.
inline void least_exponentials(std::uint64_t key, const TokenId* ids, std::size_t count, double* least) {
  detail::active().least_exponentials(key, ids, count, least);
}

/// Which of the blocks first ≤ b < first + count of tokens have a first number whose upper 52 bits are at
/// least `lowest`, ascending; returns how many. found [count + kSlack].
inline std::size_t blocks_above(std::uint64_t key, std::size_t first, std::size_t count, std::uint64_t lowest,
                                std::uint64_t* found) {
  return detail::active().blocks_above(key, first, count, lowest, found);
}

/// least[rank·stride + i], as least_exponentials gives it, and places[rank·stride + i] of the token that has
/// this rank in block blocks[i], i < count. blocks [count + kSlack]; stride is at least that.
inline void ranks_of_blocks(std::uint64_t key, const std::uint64_t* blocks, std::size_t count,
                            std::size_t stride, double* least, std::uint64_t* places) {
  detail::active().ranks_of_blocks(key, blocks, count, stride, least, places);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/kernels/header_only-inl.h"
#endif
