// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_index.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "round_outwards.hpp"
#include "screeners/prefix_options.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kBlockRows = kernels::PrefixBlocks::kRows;
constexpr float kNever = -std::numeric_limits<float>::infinity();
/// Contexts outside these lengths are not bounded: their products could leave float's range.
constexpr double kShortest = 1e-15;
constexpr double kLongest = 1e18;
/// Beyond this Σ|w_j·h_j| + |b|, the exact kernel's sums may leave float's range on the way to a logit in it.
constexpr double kLargestSum = 1e38;
/// Boxes that are opened for the likely rows: some in any case, and one more for so many rows.
constexpr std::size_t kFirstBoxes = 8;
constexpr std::size_t kWantedOfBox = 4;

/// A bound of log Z that is so much lower than the other says nothing.
constexpr double kWidest = 40.0;

constexpr const char* kOrder = "order";
constexpr const char* kOutsidePosition = "outside_position";
constexpr const char* kPrefixes = "prefixes";
constexpr const char* kTails = "tails";

/// Writes which bounds may reach the threshold to `reaching`; the sum of the others only where it is asked
/// for.
kernels::Partition divide(const Query& query, const float* estimates, const float* radii, std::size_t count,
                          float threshold, TokenId* reaching) {
  const kernels::Implementation& kernel = kernels::active();
  if (query.probabilities) return kernel.partition(estimates, radii, count, threshold, reaching);
  return {kernel.reaching(estimates, radii, count, threshold, reaching), {}};
}

}  // namespace

PrefixIndex::PrefixIndex(const IndexReader& in) {
  CertifiedOptions& options = parts_.options;
  visit_options(options, in.options());
  in.check([&] { check_chosen(options); });
  const StoredArray<double> norms = in.doubles("norms", {4});
  parts_.transform = ContextTransform(in, std::min(options.width, in.dim()), norms.data());
  parts_.longest_row = norms[2];
  parts_.largest_bias = norms[3];
  const StoredArray<double> weights = in.doubles("weights", {2, kBoundTerms});
  std::copy_n(weights.data(), kBoundTerms, parts_.prefix_weights.begin());
  std::copy_n(weights.data() + kBoundTerms, kBoundTerms, parts_.tail_weights.begin());
  parts_.outside_position = in.doubles(kOutsidePosition, {1}).data()[0];
  if (!(parts_.outside_position >= 0.0 && parts_.outside_position <= 1.0)) {
    throw in.damaged(kOutsidePosition, "is not between 0 and 1");
  }
  const bool boxed = options.boxes == BoundBoxes::always;
  if (boxed) parts_.order = RowOrder(in.distinct_tokens(kOrder, {in.vocab()}));
  parts_.prefixes = PrefixStore(in, kPrefixes, in.vocab(), options.prefix);
  parts_.prefixes.check_biases(in, kPrefixes, parts_.order);
  if (boxed) parts_.boxes = PrefixBoxStore(in, parts_.prefixes.blocks().blocks(), options.prefix);
  parts_.tails.rows = in.vocab();
  parts_.tails.width = options.width - options.prefix;
  if (parts_.tails.width > 0) load_tails(in);
}

void PrefixIndex::load_tails(const IndexReader& in) {
  kernels::PrefixTails& tails = parts_.tails;
  parts_.tail_bytes = in.array<std::byte>(kTails, {tails.rows, tails.row_bytes()}, DataType::uint8);
  tails.data = parts_.tail_bytes.data();
  for (std::size_t row = 0; row < tails.rows; ++row) {
    std::array<float, 2> scale_and_radius{};
    static_assert(sizeof(scale_and_radius) == kernels::PrefixTails::kFooter);
    std::memcpy(scale_and_radius.data(),
                tails.data + (row + 1) * tails.row_bytes() - sizeof(scale_and_radius),
                sizeof(scale_and_radius));
    if (scale_and_radius[0] >= 0.0F && scale_and_radius[1] >= 0.0F) continue;
    throw in.damaged(kTails, "has a scale or radius that is NaN or below 0 in row " + std::to_string(row));
  }
}

void PrefixIndex::save(IndexWriter& out) const {
  visit_options(parts_.options, out.options());
  parts_.transform.save(out);
  out.array("norms", {4},
            StoredArray<double>::own(std::vector{parts_.transform.unorthogonality(), parts_.transform.norm(),
                                                 parts_.longest_row, parts_.largest_bias}));
  std::vector<double> weights(parts_.prefix_weights.begin(), parts_.prefix_weights.end());
  weights.insert(weights.end(), parts_.tail_weights.begin(), parts_.tail_weights.end());
  out.array("weights", {2, kBoundTerms}, StoredArray<double>::own(std::move(weights)));
  out.array(kOutsidePosition, {1}, StoredArray<double>::own(std::vector{parts_.outside_position}));
  parts_.prefixes.save(out, kPrefixes);
  if (has_boxes()) {
    out.array(kOrder, {rows()}, parts_.order.tokens());
    parts_.boxes.save(out);
  }
  const kernels::PrefixTails& tails = parts_.tails;
  if (tails.width > 0) {
    out.array(kTails, {tails.rows, tails.row_bytes()}, parts_.tail_bytes, DataType::uint8);
  }
}

PrefixIndex::Bounds PrefixIndex::bound(const Query& query, Workspace& workspace) const {
  Bounds bounds;
  bound_batch(query, 0, {&bounds, 1}, workspace);
  return bounds;
}

void PrefixIndex::bound_batch(const Query& query, std::size_t stride, std::span<Bounds> batch,
                              Workspace& workspace) const {
  const kernels::Implementation& kernel = kernels::active();
  const kernels::PrefixBlocks& all = parts_.prefixes.blocks();
  const std::size_t room = (has_boxes() ? boxes().centres.blocks() : all.blocks()) * kBlockRows;
  auto* const coordinates = workspace.screen[0].get<float>(batch.size() * coordinate_room());
  auto* const shorts = workspace.screen[1].get<std::int16_t>((batch.size() + 1) * all.width);
  auto* const estimates = workspace.screen[2].get<float>(batch.size() * room);
  auto* const radii = workspace.screen[3].get<float>(batch.size() * room);
  for (std::size_t q = 0; q < batch.size(); ++q) {
    batch[q].estimates = estimates + q * room;
    batch[q].radii = radii + q * room;
    prepare(query.h + q * stride, coordinates + q * coordinate_room(), shorts + q * all.width, batch[q]);
  }
  if (has_boxes()) {
    std::int16_t* const magnitudes = shorts + batch.size() * all.width;
    for (const Bounds& bounds : batch) {
      std::transform(bounds.prefix.n, bounds.prefix.n + all.width, magnitudes,
                     [](std::int16_t n) { return static_cast<std::int16_t>(std::abs(n)); });
      kernel.box_bounds(boxes(), bounds.prefix, magnitudes, bounds.estimates, bounds.radii);
    }
    return;
  }
  // All contexts meet a part of the prefixes while it is in the second cache.
  const std::size_t part = std::max<std::size_t>(kPartBytes / all.block_bytes(), 1);
  for (std::size_t first = 0; first < all.blocks(); first += part) {
    const kernels::PrefixBlocks blocks = all.part(first, std::min(part, all.blocks() - first));
    for (const Bounds& bounds : batch) {
      kernel.prefix_bounds(blocks, bounds.prefix, bounds.estimates + first * kBlockRows,
                           bounds.radii + first * kBlockRows);
    }
  }
  for (const Bounds& bounds : batch) kernels::leave_out_edited(query.edits, rows(), bounds.estimates);
}

std::size_t PrefixIndex::coordinate_room() const {
  // Of c, then of h', behind which prefixes and tails meet zeros: a tail's with all that its row stores.
  const std::size_t tail = parts_.tails.width == 0 ? 0 : parts_.tails.row_bytes();
  return parts_.transform.room() + std::max(parts_.transform.room(), parts_.prefixes.blocks().width + tail);
}

void PrefixIndex::prepare(const float* h, float* coordinates, std::int16_t* n, Bounds& bounds) const {
  const ContextTransform& transform = parts_.transform;
  const std::size_t width = transform.width();
  const std::size_t prefix = parts_.prefixes.blocks().width;
  float* const projected = coordinates;
  float* const transformed = projected + transform.room();
  transform.apply(h, projected, transformed);
  std::fill(transformed + transform.room(), coordinates + coordinate_room(), 0.0F);
  const ContextTransform::Lengths lengths = transform.lengths(h, projected, transformed);
  bounds.usable = lengths.context.low >= kShortest && lengths.context.high <= kLongest &&
                  parts_.longest_row * lengths.context.high + parts_.largest_bias <= kLargestSum;

  const float quantum = round_to_shorts(transformed, prefix, n);
  // A prefix too short to be divided counts as zero, wrong by as much as its peak.
  const double error_quantum = quantum > 0.0F ? static_cast<double>(quantum) : 2.0 * kTooShortToRound;
  BoundTerms terms{};
  terms[kOutside] = transform.outside(lengths);
  terms[kRounding] = transform.error(lengths) + 0.51 * error_quantum * std::sqrt(static_cast<double>(prefix));
  const auto radius = [&terms](const BoundTerms& weights) {
    double sum = 0.0;
    for (std::size_t i = 0; i < kBoundTerms; ++i) sum += terms[i] * weights[i] * (terms[i] * weights[i]);
    return up(std::sqrt(sum) * (1.0 + 0x1p-18));  // and the rounding of estimate + radius
  };
  const std::size_t used = std::min(prefix, width);
  terms[kLonger] = length_of(transformed + used, width - used).high;
  terms[kRounded] = length_of(transformed, used).high;
  bounds.prefix = {n, quantum, radius(parts_.prefix_weights)};
  terms[kLonger] = 0.0;
  terms[kRounded] = lengths.transformed.high;
  bounds.tail = {transformed + prefix, radius(parts_.tail_weights)};
}

PrefixIndex::BoundedRows PrefixIndex::all_rows(const Bounds& bounds) const {
  return {.estimates = bounds.estimates, .radii = bounds.radii, .count = rows()};
}

PrefixIndex::BoundedRows PrefixIndex::rows_of_blocks(const Query& query, const Bounds& bounds,
                                                     std::span<const TokenId> blocks,
                                                     Workspace& workspace) const {
  const kernels::PrefixBlocks& all = parts_.prefixes.blocks();
  const std::size_t room = blocks.size() * kBlockRows;
  auto* const estimates = workspace.screen[4].get<float>(2 * room);
  float* const radii = estimates + room;
  kernels::active().prefix_bounds_gathered(all, blocks.data(), blocks.size(), bounds.prefix, estimates,
                                           radii);
  leave_out_edited(query.edits, blocks, estimates);
  const bool has_last = !blocks.empty() && static_cast<std::size_t>(blocks.back()) + 1 == all.blocks();
  const std::size_t missing = has_last ? all.blocks() * kBlockRows - all.rows : 0;
  return {.estimates = estimates,
          .radii = radii,
          .count = room - missing,
          .blocks = blocks,
          .bytes_read = blocks.size() * all.block_bytes()};
}

void PrefixIndex::leave_out_edited(const kernels::LogitEdits& edits, std::span<const TokenId> blocks,
                                   float* estimates) const {
  if (edits.allowed != nullptr) {
    const BoundedRows bounded = {.blocks = blocks};
    for (std::size_t i = 0; i < blocks.size() * kBlockRows; ++i) {
      const std::size_t place = bounded.place(i);
      if (place < rows() && !edits.allows(token(place))) estimates[i] = kNever;
    }
  }
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    const std::size_t place = parts_.order.place(edits.bias[b].id);
    const auto block = static_cast<TokenId>(place / kBlockRows);
    const auto at = std::lower_bound(blocks.begin(), blocks.end(), block);
    if (at == blocks.end() || *at != block) continue;
    estimates[static_cast<std::size_t>(at - blocks.begin()) * kBlockRows + place % kBlockRows] = kNever;
  }
}

PrefixIndex::BoundedRows PrefixIndex::likely_rows(const Query& query, const Bounds& bounds,
                                                  std::size_t wanted, Workspace& workspace) const {
  if (!has_boxes()) return all_rows(bounds);
  const std::size_t count = boxes().count();
  const std::size_t few = std::min(kFirstBoxes + wanted / kWantedOfBox, count);
  auto* const maxima = workspace.logits.get<float>(count / 8 + 2 * kernels::kSlack);
  auto* const blocks = workspace.screen[5].get<TokenId>(count + kernels::kSlack);
  const std::size_t found = kernels::active().promising(bounds.estimates, count, few, maxima, blocks);
  return rows_of_blocks(query, bounds, {blocks, found}, workspace);
}

PrefixIndex::BoundedRows PrefixIndex::rows_reaching(const Query& query, const Bounds& bounds, float threshold,
                                                    Workspace& workspace) const {
  if (!has_boxes()) return all_rows(bounds);
  const std::size_t count = boxes().count();
  auto* const blocks = workspace.screen[5].get<TokenId>(count + kernels::kSlack);
  const kernels::Partition open = divide(query, bounds.estimates, bounds.radii, count, threshold, blocks);
  BoundedRows rows = rows_of_blocks(query, bounds, {blocks, open.reaching}, workspace);
  rows.others = static_cast<double>(kBlockRows) * open.rest.high;
  return rows;
}

PrefixIndex::Survivors PrefixIndex::survivors(const Query& query, const Bounds& bounds, float threshold,
                                              std::size_t most, Workspace& workspace) const {
  const kernels::Implementation& kernel = kernels::active();
  const BoundedRows bounded = rows_reaching(query, bounds, threshold, workspace);
  auto* const ids = workspace.candidates.get<TokenId>(bounded.count + kernels::kSlack);
  Survivors result;
  result.bounded = bounded.blocks.empty() ? 0 : bounded.count;
  result.bytes_read = bounded.bytes_read;
  const auto [first, rest] = divide(query, bounded.estimates, bounded.radii, bounded.count, threshold, ids);
  result.outside = {rest.low, rest.high + bounded.others};
  const bool too_many = first > most;
  const bool has_tails = parts_.tails.width > 0 && !too_many;
  auto* const estimates = workspace.screen[6].get<float>(2 * first);
  float* const radii = estimates + first;
  for (std::size_t i = 0; i < first; ++i) {
    const auto at = static_cast<std::size_t>(ids[i]);
    estimates[i] = bounded.estimates[at];
    ids[i] = static_cast<TokenId>(bounded.place(at));
  }
  std::size_t kept = first;
  if (has_tails) {
    kernel.tail_bounds(parts_.tails, bounds.tail, ids, first, estimates, radii);
    result.bounded += first;
    result.bytes_read += first * parts_.tails.row_bytes();
    kept = 0;
    std::size_t dropped = 0;  // moved to the front, to be summed
    for (std::size_t i = 0; i < first; ++i) {
      const bool below = estimates[i] + radii[i] < threshold;
      estimates[dropped] = estimates[i];
      radii[dropped] = radii[i];
      dropped += below ? 1 : 0;
      ids[kept] = ids[i];
      kept += below ? 0 : 1;
    }
    if (query.probabilities) {
      const kernels::SumBounds more = kernel.sum_exp_bounds(estimates, radii, dropped, threshold);
      result.outside.low += more.low;
      result.outside.high += more.high;
    }
  }
  if (!parts_.order.is_natural()) {
    for (std::size_t i = 0; i < kept; ++i) ids[i] = token(static_cast<std::size_t>(ids[i]));
  }
  result.ids = {ids, kept};
  return result;
}

double PrefixIndex::outside_between(double low, double high) const {
  if (!(low < high)) return high;
  return high - (1.0 - parts_.outside_position) * std::min(high - low, kWidest);
}

std::size_t PrefixIndex::bytes() const {
  return parts_.prefixes.blocks().bytes() + boxes().bytes() + parts_.order.bytes() +
         parts_.transform.bytes() + (parts_.tails.width == 0 ? 0 : parts_.tails.bytes());
}

std::size_t PrefixIndex::bytes_scanned() const {
  return parts_.transform.bytes() + (has_boxes() ? boxes().bytes() : parts_.prefixes.blocks().bytes());
}

}  // namespace topksoftmax
