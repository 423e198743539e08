// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>

#include "topksoftmax/certified/boxes.hpp"
#include "topksoftmax/certified/dither.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/outside_estimate.hpp"
#include "topksoftmax/certified/radii.hpp"
#include "topksoftmax/certified/row_covariance.hpp"
#include "topksoftmax/certified/tails.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_boxes.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/row_order.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The rows of a layer in coordinates in which few of them bound a logit well: what Certified keeps. See
/// CertifiedScreener for the proof and its symbols. Rows are kept in an order of the index's own; a row's
/// place in it is a TokenId too.
struct TOPKSOFTMAX_EXPORT CertifiedIndex {
  CertifiedIndex() = default;

  /// Reads what save() has written.
  explicit CertifiedIndex(const IndexReader& in);
  void save(IndexWriter& out) const;

  std::size_t rows() const { return prefixes.blocks().rows; }
  TokenId token(std::size_t place) const { return order.token(place); }
  /// Whether likely rows are sought in a few boxes only.
  bool has_boxes() const { return boxes().count() > 0; }
  kernels::PrefixBoxes boxes() const { return box_store.boxes(); }

  /// What the contexts of a batch read together: the transform and, without boxes, the prefixes.
  std::size_t bytes_shared() const {
    return transform.bytes() + (has_boxes() ? 0 : prefixes.blocks().bytes());
  }

  /// Whether that is too much for a cache: then a batch had better be bounded in one pass.
  bool shares_scans() const { return bytes_shared() > kernels::kPartBytes; }

  std::size_t bytes() const {
    return prefixes.blocks().bytes() + boxes().bytes() + order.bytes() + transform.bytes() + tails.bytes() +
           outside.bytes() + (covariance ? covariance->bytes() : 0);
  }
  /// Whether every bound is proven, or those of a context's k best rows are right but for a probability of
  /// options.failure_probability.
  bool is_proven() const { return !dither.is_random(); }

  /// Coordinates that rows have, of those of contexts: the estimate of log Z may know no others.
  std::size_t stored_width() const { return std::min(options.width, transform.width()); }

  /// Bytes that bounding a context reads: see bound().
  std::size_t bytes_scanned() const {
    return transform.bytes() + (has_boxes() ? boxes().bytes() : prefixes.blocks().bytes());
  }
  /// How many bounds that computes.
  std::size_t bounds_scanned() const { return has_boxes() ? boxes().count() : rows(); }

  /// What no other index points to while someone has a copy.
  std::shared_ptr<const char> identity = std::make_shared<const char>();
  CertifiedOptions options;  ///< with the prefix, the width and whether there are boxes as they were chosen
  ContextTransform transform;
  BoundTerms box_weights{};     ///< κ of the boxes, where there are any
  BoundTerms prefix_weights{};  ///< κ of the prefixes
  BoundTerms tail_weights{};    ///< κ of prefixes and tails
  CodeTerms code_weights{};     ///< κ of coordinates in codes, where there are any
  Dither dither;                ///< of these
  double longest_row = 0.0;     ///< max ‖w‖
  double largest_bias = 0.0;    ///< max |b|
  OutsideEstimate outside;      ///< of log Σ exp(logit) over the rows that stay below a threshold
  RowOrder order;               ///< of prefixes and tails
  PrefixStore prefixes;
  BoxStore box_store;  ///< of no rows if there are none
  TailStore tails;
  /// Of all rows, where it is far smaller than they are.
  std::optional<RowCovariance> covariance;

 private:
  static constexpr const char* kOrder = "order";
  static constexpr const char* kPrefixes = "prefixes";
  static constexpr const char* kInt4Width = "int4_width";
  static constexpr const char* kInt2Width = "int2_width";
  static constexpr const char* kFailureProbability = "failure_probability";
  static constexpr const char* kCodeWeights = "code_weights";
  static constexpr const char* kBoxWidth = "box_width";
  static constexpr const char* kBoundWeights = "bound_weights";
  static constexpr const char* kOlderWeights = "weights";

  void read_weights(const IndexReader& in);
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/certified/index-inl.hpp"
#endif
