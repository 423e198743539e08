// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "screeners/context_transform.hpp"
#include "screeners/prefix_boxes.hpp"
#include "screeners/prefix_store.hpp"
#include "screeners/row_order.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_boxes.hpp"
#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/stored_array.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {

class IndexReader;
class IndexWriter;

/// What radii are made of: w'₂ with h'₂, w⊥ with h⊥, w'−ŵ with h', N with E.
enum BoundTerm { kLonger, kOutside, kRounded, kRounding, kBoundTerms };
using BoundTerms = std::array<double, kBoundTerms>;

/// What a PrefixIndex consists of.
struct PrefixIndexParts {
  CertifiedOptions options;  ///< with the prefix, the width and whether there are boxes as they were chosen
  ContextTransform transform;
  BoundTerms prefix_weights{};  ///< κ of the prefixes
  BoundTerms tail_weights{};    ///< κ of prefixes and tails
  double longest_row = 0.0;     ///< max ‖w‖
  double largest_bias = 0.0;    ///< max |b|
  /// Where log Σ exp(logit) over the rows that stay below a threshold typically is between its bounds: 0 at
  /// the lower, 1 at the upper.
  double outside_position = 0.5;
  RowOrder order;  ///< of prefixes and tails
  PrefixStore prefixes;
  PrefixBoxStore boxes;  ///< of no rows if there are none
  StoredArray<std::byte> tail_bytes;
  kernels::PrefixTails tails;
};

/// The rows of a layer in coordinates in which few of them bound a logit well. See CertifiedScreener for the
/// proof and its symbols. Rows are kept in an order of the index's own; a row's place in it is a TokenId too.
class PrefixIndex {
 public:
  explicit PrefixIndex(PrefixIndexParts parts) : parts_(std::move(parts)) {}

  /// Reads what save() has written.
  explicit PrefixIndex(const IndexReader& in);
  void save(IndexWriter& out) const;

  /// What a context's bounds are made of, and the first of them, in the workspace that they were made in.
  struct Bounds {
    kernels::PrefixContext prefix{};
    kernels::TailContext tail{};  ///< to bound rows by all their coordinates
    float* estimates = nullptr;   ///< of all rows by their prefixes, or of the boxes if there are any, …
    float* radii = nullptr;       ///< … rounded up to whole blocks
    bool usable = false;          ///< false: h is too short or too long to be bounded, or logits may overflow
  };

  /// Contexts that bound_batch takes at the most.
  static constexpr std::size_t kBatch = 4;
  /// Bytes of prefixes that stay in the second cache while all contexts of a batch meet them.
  static constexpr std::size_t kPartBytes = 512 * 1024;

  Bounds bound(const Query& query, Workspace& workspace) const;

  /// The same for batch.size() ≤ kBatch contexts at query.h, `stride` floats apart, in one pass.
  void bound_batch(const Query& query, std::size_t stride, std::span<Bounds> batch,
                   Workspace& workspace) const;

  /// Rows that were bounded by their prefixes. Forbidden and biased ones have an estimate of −∞: no bound of
  /// theirs holds.
  struct BoundedRows {
    const float* estimates = nullptr;
    const float* radii = nullptr;
    std::size_t count = 0;
    std::span<const TokenId> blocks{};  ///< which they are blocks of; none: all rows
    double others = 0.0;  ///< Σ exp(logit − threshold) over all other rows at the most, if asked for
    std::size_t bytes_read = 0;

    std::size_t place(std::size_t i) const {
      constexpr std::size_t rows = kernels::PrefixBlocks::kRows;
      return blocks.empty() ? i : static_cast<std::size_t>(blocks[i / rows]) * rows + i % rows;
    }
  };

  /// Rows among which are most of the `wanted` with the largest logits.
  BoundedRows likely_rows(const Query& query, const Bounds& bounds, std::size_t wanted,
                          Workspace& workspace) const;

  /// Rows among which are all whose logits may reach a threshold.
  BoundedRows rows_reaching(const Query& query, const Bounds& bounds, float threshold,
                            Workspace& workspace) const;

  /// The tokens whose logits may reach a threshold, by their prefixes and then by their tails too.
  struct Survivors {
    std::span<const TokenId> ids;
    kernels::SumBounds outside{0.0, 0.0};  ///< of Σ exp(logit − threshold) over all other rows, if asked for
    std::size_t bounded = 0;               ///< rows that were bounded after bound(), once or twice
    std::size_t bytes_read = 0;
  };
  /// Where their prefixes let more than `most` pass, all these, unasked by their tails.
  Survivors survivors(const Query& query, const Bounds& bounds, float threshold, std::size_t most,
                      Workspace& workspace) const;

  /// What log Σ exp(logit) over the rows outside typically is, given its bounds.
  double outside_between(double low, double high) const;

  /// Whether likely rows are sought in a few boxes only.
  bool has_boxes() const { return boxes().count() > 0; }

  TokenId token(std::size_t place) const { return parts_.order.token(place); }

  /// Whether the prefixes are all read, and are more than the second cache holds for the next context anyway.
  bool gains_from_batches() const { return !has_boxes() && parts_.prefixes.blocks().bytes() > kPartBytes; }

  std::size_t rows() const { return parts_.prefixes.blocks().rows; }
  std::size_t bytes() const;
  /// Bytes that bound() reads.
  std::size_t bytes_scanned() const;
  /// How many bounds it computes.
  std::size_t bounds_scanned() const { return has_boxes() ? boxes().count() : rows(); }

 private:
  kernels::PrefixBoxes boxes() const { return parts_.boxes.boxes(); }

  void load_tails(const IndexReader& in);

  /// Transforms a context: coordinates [coordinate_room()], n [prefix], and what is of the context alone in
  /// its bounds.
  void prepare(const float* h, float* coordinates, std::int16_t* n, Bounds& bounds) const;
  std::size_t coordinate_room() const;

  /// All rows, as bound() has bounded them.
  BoundedRows all_rows(const Bounds& bounds) const;
  BoundedRows rows_of_blocks(const Query& query, const Bounds& bounds, std::span<const TokenId> blocks,
                             Workspace& workspace) const;
  void leave_out_edited(const kernels::LogitEdits& edits, std::span<const TokenId> blocks,
                        float* estimates) const;

  PrefixIndexParts parts_;
};

}  // namespace topksoftmax
