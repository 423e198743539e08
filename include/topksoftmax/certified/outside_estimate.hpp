// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "topksoftmax/certified/context_regions.hpp"
#include "topksoftmax/certified/outside_features.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/top_k.hpp"

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

/// What is known at the build of log Σ exp(logit) over the rows that stay below a threshold, of which a query
/// has bounds.
struct OutsideEstimate {
  /// Where it typically is between its bounds: 0 at the lower, 1 at the upper.
  double position = 0.5;
  /// The same as contexts teach it, of `features` of the context and its bounds: for each size of k a model
  /// for each region.
  std::optional<OutsideMass> models = std::nullopt;
  OutsideFeatures features = {};
  ContextRegions regions = {};

  OutsideEstimate() = default;

  /// Reads what save() has written, where contexts have so many coordinates.
  OutsideEstimate(const IndexReader& in, std::size_t width)
      : position(in.doubles(kPosition, {1})[0]),
        regions(ContextRegions::load(in, OutsideFeatures::paired(width))) {
    if (!(position >= 0.0 && position <= 1.0)) throw in.damaged(kPosition, "is not between 0 and 1");
    models = OutsideMass::load(in, regions.count() * kOutsideModels, IndexReader::any);
    if (!models) return;
    features = OutsideFeatures::at_most(models->models().dim(), width);
    if (features.count() != models->models().dim())
      throw in.damaged(OutsideMass::kWeights, "has no column for each feature");
  }

  void save(IndexWriter& out) const {
    out.array(kPosition, {1}, StoredArray<double>::own(std::vector{position}));
    regions.save(out);
    if (models) models->save(out);
  }

  std::size_t bytes() const { return regions.bytes() + (models ? models->bytes() : 0); }

  /// How far off it was in contexts that were held out, where it was learned.
  std::optional<LogZError> error() const { return models ? std::optional(models->error()) : std::nullopt; }

  /// What it typically is, given its bounds.
  double between(double low, double high) const {
    if (!(low < high)) return high;
    return high - (1.0 - position) * std::min(high - low, OutsideFeatures::kWidest);
  }

  /// What the models make of these features of a context with these coordinates, for a k at this place.
  double learned(const float* coordinates, const float* values, const PlaceOfSize& place) const {
    const std::size_t model =
        static_cast<std::size_t>(place.size) * regions.count() + regions.of(coordinates);
    const double log_mass = models->log_mass(model, values);
    if (place.to_next == 0.0) return log_mass;
    return std::lerp(log_mass, models->log_mass(model + regions.count(), values), place.to_next);
  }

 private:
  static constexpr const char* kPosition = "outside_position";
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
