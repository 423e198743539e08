// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "topksoftmax/certified/boxes.hpp"
#include "topksoftmax/certified/context_regions.hpp"
#include "topksoftmax/certified/dither.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/outside_features.hpp"
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
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/row_order.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Sizes of k that the estimate of log Z has a model for each, in each region: the more tokens are asked for,
/// the fewer rows are outside.
enum class OutsideOf : std::uint8_t { fewest, expected, many };
inline constexpr std::size_t kOutsideModels = 3;

inline constexpr std::size_t kManyOfExpected = 8;

/// The k that a model is learned with, of at most `vocab` tokens.
inline std::size_t learning_k(OutsideOf size, std::size_t expected_k, std::size_t vocab) {
  const std::size_t expected = std::min(expected_k, vocab);
  if (size == OutsideOf::fewest) return 1;
  return size == OutsideOf::expected ? expected : std::min(kManyOfExpected * expected, vocab);
}

/// Where a k lies among the sizes: at one, or that share of the way to the next one, by the logarithm of k.
struct PlaceOfSize {
  OutsideOf size = OutsideOf::many;
  double to_next = 0.0;  ///< 0 where there is none

  PlaceOfSize(std::size_t k, std::size_t expected_k, std::size_t vocab) {
    const auto asked = static_cast<double>(k);
    const auto expected = static_cast<double>(learning_k(OutsideOf::expected, expected_k, vocab));
    const auto many = static_cast<double>(learning_k(OutsideOf::many, expected_k, vocab));
    if (asked >= many) return;
    size = asked < expected ? OutsideOf::fewest : OutsideOf::expected;
    to_next = asked < expected ? std::log(asked) / std::log(expected)
                               : std::log(asked / expected) / std::log(many / expected);
  }
};

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

  /// Whether what every context reads (the transform and, without boxes, the prefixes) is more than the
  /// second cache holds for the next context anyway.
  bool gains_from_batches() const {
    return transform.bytes() + (has_boxes() ? 0 : prefixes.blocks().bytes()) > kernels::kPartBytes;
  }

  std::size_t bytes() const {
    return prefixes.blocks().bytes() + boxes().bytes() + order.bytes() + transform.bytes() + tails.bytes() +
           regions.bytes() + (outside_mass ? outside_mass->bytes() : 0) +
           (covariance ? covariance->bytes() : 0);
  }
  /// Whether every bound is proven, or those of a context's k best rows are right but for a probability of
  /// options.failure_probability.
  bool is_proven() const { return !dither.is_random(); }

  /// How far the estimate of log Z was off in contexts that were held out, where it was learned.
  std::optional<LogZError> log_z_error() const {
    return outside_mass ? std::optional(outside_mass->error()) : std::nullopt;
  }

  /// What outside_mass makes of these features of a context with these coordinates, for this k.
  double learned_outside(const float* coordinates, const float* features, std::size_t k) const {
    const PlaceOfSize place(k, options.expected_k, rows());
    const std::size_t model =
        static_cast<std::size_t>(place.size) * regions.count() + regions.of(coordinates);
    const double log_mass = outside_mass->log_mass(model, features);
    if (place.to_next == 0.0) return log_mass;
    return std::lerp(log_mass, outside_mass->log_mass(model + regions.count(), features), place.to_next);
  }

  /// Coordinates that rows have, of those of contexts: the estimate of log Z may know no others.
  std::size_t stored_width() const { return std::min(options.width, transform.width()); }

  /// Bytes that bounding a context reads: see bound().
  std::size_t bytes_scanned() const {
    return transform.bytes() + (has_boxes() ? boxes().bytes() : prefixes.blocks().bytes());
  }
  /// How many bounds that computes.
  std::size_t bounds_scanned() const { return has_boxes() ? boxes().count() : rows(); }

  /// What log Σ exp(logit) over the rows outside typically is, given its bounds.
  double outside_between(double low, double high) const {
    if (!(low < high)) return high;
    return high - (1.0 - outside_position) * std::min(high - low, OutsideFeatures::kWidest);
  }

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
  /// Where log Σ exp(logit) over the rows that stay below a threshold typically is between its bounds: 0 at
  /// the lower, 1 at the upper.
  double outside_position = 0.5;
  /// The same as contexts teach it, of features of the context and its bounds: for each size of k a model for
  /// each region.
  std::optional<OutsideMass> outside_mass;
  OutsideFeatures outside_features;
  ContextRegions regions;
  RowOrder order;  ///< of prefixes and tails
  PrefixStore prefixes;
  BoxStore box_store;  ///< of no rows if there are none
  TailStore tails;
  /// Of all rows, where it is far smaller than they are.
  std::optional<RowCovariance> covariance;

 private:
  static constexpr const char* kOrder = "order";
  static constexpr const char* kOutsidePosition = "outside_position";
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
