// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "topksoftmax/certified/dither.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/last_context.hpp"
#include "topksoftmax/certified/radii.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_boxes.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/rows/context_rounding.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What a context's bounds are made of, and the first of them, in the workspace that they were made in.
struct ContextBounds {
  kernels::PrefixContext box{};  ///< the leading coordinates of the prefix, where there are boxes
  kernels::PrefixContext prefix{};
  kernels::TailContext tail{};  ///< to bound rows by all their coordinates
  float* estimates = nullptr;   ///< of all rows by their prefixes, or of the boxes if there are any, …
  float* radii = nullptr;       ///< … rounded up to whole blocks
  const float* coordinates = nullptr;  ///< h' [width]
  bool usable = false;  ///< false: h is too short or too long to be bounded, or logits may overflow; no bound
                        ///< holds then
  // What it took to bound the context, which is nothing where the bounds were there already:
  std::size_t bytes_read = 0;
  std::size_t bounded = 0;  ///< rows, or boxes
};

/// What Certified works in.
struct CertifiedScratch {
  ScratchBuffer coordinates;  ///< c and h' of every context of a batch
  ScratchBuffer integers;     ///< ĥ₁, what meets tails, and the magnitudes of every context
  ScratchBuffer bytes;        ///< ĥ₂ of every context, and its shifts
  ScratchBuffer estimates;    ///< of all rows, or of all boxes, for every context
  ScratchBuffer radii;
  ScratchBuffer divided;      ///< what parts of these have that is looked for
  ScratchBuffer transformed;  ///< bounds of logits, where these are not those of the products
  ScratchBuffer opened;       ///< bounds of the rows of some blocks
  ScratchBuffer blocks;       ///< which these are
  ScratchBuffer reaching;     ///< rows that their prefixes let pass, and then those that their tails do
  ScratchBuffer survivors;    ///< their bounds
  ScratchBuffer ids;          ///< what is picked of bounds, or scored
  ScratchBuffer logits;       ///< of rows that are scored; the candidates'
  ScratchBuffer features;     ///< of the context, for the estimate of log Z
  ScratchBuffer forbidden;    ///< rows that a mask forbids, where these are few
  ScratchBuffer forbidden_logits;
};

/// What a workspace has bounded last.
struct LastBounds {
  LastContext context;
  std::size_t k = 0;  ///< that they are for, where they are not proven
  ContextBounds bounds;
};

/// A context that has been bounded, on its way to its candidates.
struct BoundedQuery {
  const SoftmaxLayer& layer;
  const CertifiedIndex& index;
  const Query& query;
  const ContextBounds& bounds;
  Workspace& workspace;

  CertifiedScratch& scratch() const { return workspace.scratch<CertifiedScratch>(); }
};

/// Where the bounds of a context are made.
struct BoundsRoom {
  float* coordinates;    ///< [coordinate_room()]
  std::int16_t* shorts;  ///< [short_room()]
  std::int8_t* bytes;    ///< [code_room()]
  float* estimates;      ///< [bounds_room()]
  float* radii;          ///< likewise
};

/// Bounds all rows by their prefixes, or all boxes if there are any, for at most kernels::kPrefixBatch
/// contexts in one pass, each to its own bounds, in the room of each. Reads index.bytes_scanned(), with the
/// workspace's crew.
void bound_batch(const CertifiedIndex& index, const QueryBatch& queries, const BoundsRoom* rooms,
                 std::span<ContextBounds> batch, const Workspace& workspace);

/// The same with the bounds in the workspace, until that bounds others.
void bound_batch(const CertifiedIndex& index, const QueryBatch& queries, std::span<ContextBounds> batch,
                 Workspace& workspace);

/// The same for any number of contexts, with the bounds of each in a workspace of its own: there they are
/// found by bound().
void bound_each(const CertifiedIndex& index, const QueryBatch& queries, std::span<Workspace* const> own,
                const Workspace& workspace);

/// The same for one, in the workspace until it bounds another. Nothing is read where it still has these
/// bounds (QueryOptions::same_context).
const ContextBounds& bound(const CertifiedIndex& index, const Query& query, Workspace& workspace);

/// The same as what it leads to.
BoundedQuery bounded(const SoftmaxLayer& layer, const CertifiedIndex& index, const Query& query,
                     Workspace& workspace);

inline constexpr std::size_t kBlockRows = kernels::PrefixBlocks::kRows;
/// Contexts outside these lengths are not bounded: their products could leave float's range.
inline constexpr double kShortest = 1e-15;
inline constexpr double kLongest = 1e18;
/// Beyond this Σ|w_j·h_j| + |b|, the exact kernel's sums may leave float's range on the way to a logit in it.
inline constexpr double kLargestSum = 1e38;

/// No Σ|w_j·h_j| + |b| of a context of this length is above it.
inline double largest_sum(const CertifiedIndex& index, double length) {
  return index.longest_row * length + index.largest_bias;
}

/// Values that h' takes, with zeros that a prefix may meet behind it.
inline std::size_t transformed_room(const CertifiedIndex& index) {
  const kernels::PrefixBlocks& prefixes = index.prefixes.blocks();
  return std::max(index.transform.room(), prefixes.width + prefixes.code_width());
}

/// Values that c takes, and h' behind it.
inline std::size_t coordinate_room(const CertifiedIndex& index) {
  return index.transform.projected_room() + transformed_room(index);
}

/// 15-bit integers that meet prefixes, behind them those that meet tails, and the magnitudes of the first.
inline std::size_t short_room(const CertifiedIndex& index) {
  return 2 * index.prefixes.blocks().width + index.tails.context_room();
}

/// Bounds of all rows, or of all boxes, and what fills the last block.
inline std::size_t bounds_room(const CertifiedIndex& index) {
  const kernels::PrefixBlocks& bounded = index.has_boxes() ? index.boxes().centres : index.prefixes.blocks();
  return bounded.blocks() * kBlockRows;
}

/// Bytes that a context's coordinates take where rows have them as codes, and behind them their shifts.
inline std::size_t code_room(const CertifiedIndex& index) {
  const std::size_t width = index.prefixes.blocks().code_width();
  return width + width / kernels::CodeContext::kSegment;
}

/// What an offset is rounded by, ½·scale·context.scale, in lengths of rows: a scale of codes, of fifteen or
/// three steps to the largest coordinate, is below half of the row.
inline constexpr double kOffsetRounding = 0.25;

/// Rounds a context's coordinates x where rows have them as codes of some bits, to n [codes.width] and
/// shifts, against the dither t of these, if they have any. Returns ‖x − x̂‖ at the most.
inline double prepare_codes(const float* x, const float* t, std::size_t width, std::int8_t* n,
                            std::uint8_t* shifts, kernels::CodeContext& context) {
  if (width == 0) return 0.0;
  const RoundedToSegments rounded = round_to_segments(x, width, n, shifts);
  context = {n, shifts, rounded.scale, 0};
  if (t != nullptr) context.offset = dither_offset(t, context, width);
  return rounded.lost;
}

/// The same of all codes, to bytes [code_room()], for the k best. Returns what both lose.
inline double prepare_codes(const CertifiedIndex& index, const float* x, std::size_t k, std::int8_t* bytes,
                            kernels::PrefixContext& context) {
  constexpr std::size_t kSegment = kernels::CodeContext::kSegment;
  const kernels::PrefixBlocks& blocks = index.prefixes.blocks();
  const std::size_t int4 = blocks.int4_width;
  const std::size_t int2 = blocks.int2_width;
  if (blocks.code_width() == 0) return 0.0;
  auto* const shifts = reinterpret_cast<std::uint8_t*>(bytes + blocks.code_width());
  const bool random = index.dither.is_random();
  const float* const t = random ? index.dither.t().data() : nullptr;
  const float* const behind = random ? t + int4 : nullptr;
  const double of_int4 = prepare_codes(x, t, int4, bytes, shifts, context.int4);
  const double of_int2 =
      prepare_codes(x + int4, behind, int2, bytes + int4, shifts + int4 / kSegment, context.int2);
  const double lost = std::hypot(of_int4, of_int2) * kOutward;
  const double reach = index.dither.reach(k);
  const double met_by_int4 = length_of(x, int4).high;
  const double met_by_int2 = length_of(x + int4, int2).high;
  const CodeTerms terms = {reach * met_by_int4, reach * met_by_int2, lost, met_by_int4, met_by_int2};
  context.code_radius = code_context_radius(terms, index.code_weights);
  return lost;
}

/// What of a context's prefix meets the boxes: their leading coordinates, and a radius for all others.
/// `terms` are those of the prefix.
inline kernels::PrefixContext box_context(const CertifiedIndex& index, BoundTerms terms,
                                          const float* transformed, const kernels::PrefixContext& prefix) {
  const std::size_t width = index.transform.width();
  const std::size_t boxed = std::min(index.boxes().centres.width, width);
  terms[kLonger] = length_of(transformed + boxed, width - boxed).high;
  terms[kRounded] = length_of(transformed, boxed).high;
  return {.n = prefix.n, .scale = prefix.scale, .radius = context_radius(terms, index.box_weights)};
}

/// Rounds a context that has been transformed, with transformed_room() values, to n [short_room()] and bytes
/// [code_room()], and finds what is of the context alone in its bounds, for the k best.
inline void prepare(const CertifiedIndex& index, const ContextTransform::Application& applied, std::size_t k,
                    std::int16_t* n, std::int8_t* bytes, ContextBounds& bounds) {
  bounds.prefix = {};  // an index with codes may have bounded here before, and this one may have none
  const ContextTransform& transform = index.transform;
  const std::size_t width = transform.width();
  const std::size_t prefix = index.prefixes.blocks().width;
  const ContextTransform::Lengths& lengths = applied.lengths;
  float* const transformed = applied.transformed;
  std::fill(transformed + transform.room(), transformed + transformed_room(index), 0.0F);
  bounds.coordinates = transformed;
  bounds.usable = lengths.context.low >= kShortest && lengths.context.high <= kLongest &&
                  largest_sum(index, lengths.context.high) <= kLargestSum;

  const float quantum = round_to_shorts(transformed, prefix, n);
  BoundTerms terms{};
  terms[kOutside] = transform.outside(lengths);
  terms[kRounding] =
      transform.error(lengths) + rounded_to_shorts(quantum) * std::sqrt(static_cast<double>(prefix));
  const std::size_t code_width = index.prefixes.blocks().code_width();
  const std::size_t used = std::min(prefix, width);
  const double lost_to_codes = prepare_codes(index, transformed + prefix, k, bytes, bounds.prefix);
  terms[kRounding] += kOffsetRounding * (static_cast<double>(bounds.prefix.int4.scale) +
                                         static_cast<double>(bounds.prefix.int2.scale));
  terms[kLonger] = length_of(transformed + used + code_width, width - used - code_width).high;
  terms[kRounded] = length_of(transformed, used).high;
  bounds.prefix.n = n;
  bounds.prefix.scale = quantum;
  bounds.prefix.radius = context_radius(terms, index.prefix_weights);
  if (index.has_boxes()) bounds.box = box_context(index, terms, transformed, bounds.prefix);
  const std::size_t stored = index.stored_width();
  terms[kLonger] = length_of(transformed + stored, width - stored).high;
  terms[kRounded] = length_of(transformed, stored).high;
  terms[kOfCodes] = lost_to_codes;
  std::int16_t* const of_tail = n + prefix;
  const std::size_t behind = stored - std::min(prefix, stored);
  const float quantum_behind = round_to_shorts(transformed + prefix, behind, of_tail);
  std::fill(of_tail + behind, of_tail + index.tails.context_room(), std::int16_t{0});
  terms[kRounding] += rounded_to_shorts(quantum_behind) * std::sqrt(static_cast<double>(behind));
  bounds.tail = {of_tail, quantum_behind, context_radius(terms, index.tail_weights)};
}

/// `magnitudes`: room for those of the leading coordinates.
inline void bound_boxes(const CertifiedIndex& index, const ContextBounds& bounds, std::int16_t* magnitudes,
                        const Workspace& workspace) {
  const kernels::PrefixBoxes all = index.boxes();
  std::transform(bounds.box.n, bounds.box.n + all.centres.width, magnitudes,
                 [](std::int16_t n) { return static_cast<std::int16_t>(std::abs(n)); });
  share(workspace, all.centres.blocks(), 2 * all.centres.block_bytes(),
        [&](std::size_t first, std::size_t count) {
          const kernels::PrefixBoxes boxes = {all.centres.part(first, count), all.spreads.part(first, count)};
          kernels::box_bounds(boxes, bounds.box, magnitudes, bounds.estimates + first * kBlockRows,
                              bounds.radii + first * kBlockRows);
        });
}

/// Rooms in a workspace for the bounds of so many contexts; the bounds that it had are gone.
inline void make_rooms(const CertifiedIndex& index, Workspace& workspace, std::span<BoundsRoom> rooms) {
  CertifiedScratch& scratch = workspace.scratch<CertifiedScratch>();
  workspace.scratch<LastBounds>().context.forget();
  const std::size_t coordinates_each = coordinate_room(index);
  const std::size_t shorts_each = short_room(index);
  const std::size_t bytes_each = code_room(index);
  const std::size_t bounds_each = bounds_room(index);
  auto* const coordinates = scratch.coordinates.get<float>(rooms.size() * coordinates_each);
  auto* const shorts = scratch.integers.get<std::int16_t>(rooms.size() * shorts_each);
  auto* const bytes = scratch.bytes.get<std::int8_t>(rooms.size() * bytes_each);
  auto* const estimates = scratch.estimates.get<float>(rooms.size() * bounds_each);
  auto* const radii = scratch.radii.get<float>(rooms.size() * bounds_each);
  for (std::size_t q = 0; q < rooms.size(); ++q) {
    rooms[q] = {coordinates + q * coordinates_each, shorts + q * shorts_each, bytes + q * bytes_each,
                estimates + q * bounds_each, radii + q * bounds_each};
  }
}

inline void bound_batch(const CertifiedIndex& index, const QueryBatch& queries, const BoundsRoom* rooms,
                        std::span<ContextBounds> batch, const Workspace& workspace) {
  const kernels::PrefixBlocks& all = index.prefixes.blocks();
  ContextTransform::Application applied[kernels::kPrefixBatch];
  for (std::size_t q = 0; q < batch.size(); ++q) {
    float* const projected = rooms[q].coordinates;
    applied[q] = {queries[q].h, projected, projected + index.transform.projected_room()};
  }
  index.transform.apply({applied, batch.size()}, workspace);
  for (std::size_t q = 0; q < batch.size(); ++q) {
    batch[q].bytes_read = index.bytes_scanned();
    batch[q].bounded = index.bounds_scanned();
    batch[q].estimates = rooms[q].estimates;
    batch[q].radii = rooms[q].radii;
    prepare(index, applied[q], queries[q].k, rooms[q].shorts, rooms[q].bytes, batch[q]);
  }
  if (std::ranges::none_of(batch, [](const ContextBounds& bounds) { return bounds.usable; })) {
    for (ContextBounds& bounds : batch) {
      bounds.bytes_read = index.transform.bytes();
      bounds.bounded = 0;
    }
    return;
  }
  if (index.has_boxes()) {
    for (std::size_t q = 0; q < batch.size(); ++q) {
      bound_boxes(index, batch[q], rooms[q].shorts + short_room(index) - all.width, workspace);
    }
    return;
  }
  kernels::PrefixProducts products[kernels::kPrefixBatch];
  for (std::size_t q = 0; q < batch.size(); ++q) {
    products[q] = {batch[q].prefix, batch[q].estimates, batch[q].radii};
  }
  prefix_bounds_batch(workspace, all, {products, batch.size()});
  for (std::size_t q = 0; q < batch.size(); ++q) {
    kernels::leave_out_edited(queries.edits(q), index.rows(), batch[q].estimates, batch[q].radii);
  }
}

inline void bound_batch(const CertifiedIndex& index, const QueryBatch& queries,
                        std::span<ContextBounds> batch, Workspace& workspace) {
  BoundsRoom rooms[kernels::kPrefixBatch];
  make_rooms(index, workspace, {rooms, batch.size()});
  bound_batch(index, queries, rooms, batch, workspace);
}

/// Says that a workspace has bounds of a query's context.
inline void remember(const CertifiedIndex& index, const Query& query, Workspace& workspace) {
  LastBounds& last = workspace.scratch<LastBounds>();
  last.context.remember(index.identity, query, index.transform.dim(), index.rows(), !index.has_boxes());
  last.k = query.k;
}

inline void bound_each(const CertifiedIndex& index, const QueryBatch& queries,
                       std::span<Workspace* const> own, const Workspace& workspace) {
  for (std::size_t first = 0; first < own.size(); first += kernels::kPrefixBatch) {
    const std::size_t count = std::min(kernels::kPrefixBatch, own.size() - first);
    const QueryBatch some = queries.part(first, count);
    BoundsRoom rooms[kernels::kPrefixBatch];
    ContextBounds bounds[kernels::kPrefixBatch];
    for (std::size_t q = 0; q < count; ++q) make_rooms(index, *own[first + q], {&rooms[q], 1});
    bound_batch(index, some, rooms, {bounds, count}, workspace);
    for (std::size_t q = 0; q < count; ++q) {
      own[first + q]->scratch<LastBounds>().bounds = bounds[q];
      remember(index, some[q], *own[first + q]);
    }
  }
}

inline const ContextBounds& bound(const CertifiedIndex& index, const Query& query, Workspace& workspace) {
  LastBounds& last = workspace.scratch<LastBounds>();
  const bool has_reach = index.is_proven() || query.k == last.k;
  if (query.same_context && has_reach &&
      last.context.is(index.identity, query, index.transform.dim(), index.rows(), !index.has_boxes())) {
    last.bounds.bytes_read = last.bounds.bounded = 0;
    return last.bounds;
  }
  bound_batch(index, QueryBatch(query), {&last.bounds, 1}, workspace);
  remember(index, query, workspace);
  return last.bounds;
}

inline BoundedQuery bounded(const SoftmaxLayer& layer, const CertifiedIndex& index, const Query& query,
                            Workspace& workspace) {
  return {layer, index, query, bound(index, query, workspace), workspace};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
