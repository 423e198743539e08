// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/row_covariance.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/logit_deviation.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What logit_deviation() works in.
struct DeviationScratch {
  ScratchBuffer ids;
  ScratchBuffer logits;
};

/// Up to this share of the rows, edited ones are scored, so that what edits make of them is known.
inline constexpr std::size_t kEditedShare = 16;

/// Sums of distances of logits from a centre, with what they are off by.
class DistanceSums {
 public:
  /// Of `rows` logits with these moments, from their mean.
  DistanceSums(const ProductMoments& of_all, std::size_t rows)
      : centre_(of_all.mean),
        count_(static_cast<double>(rows)),
        squares_(count_ * of_all.variance),
        error_(count_ * of_all.mean_error),
        squares_error_(count_ * (of_all.variance_error + of_all.mean_error * of_all.mean_error)) {}

  /// Logits that are those of real numbers within `rounding`.
  void take_off(double logit, double rounding) {
    count_ -= 1.0;
    add(logit, -1.0, rounding);
  }
  void replace(double logit, double by, double rounding) {
    add(logit, -1.0, rounding);
    add(by, 1.0, 0.0);
  }

  double count() const { return count_; }
  /// The variance of what is left, at the least and at the most.
  std::pair<double, double> variance() const {
    const double mean = sum_ / count_;
    const double mean_error = error_ / count_;
    const double off = squares_error_ / count_ + (2.0 * std::abs(mean) + mean_error) * mean_error;
    const double variance = squares_ / count_ - mean * mean;
    return {std::max(0.0, variance - off), std::max(0.0, variance + off)};
  }

 private:
  void add(double logit, double times, double rounding) {
    const double distance = logit - centre_;
    sum_ += times * distance;
    squares_ += times * distance * distance;
    error_ += rounding;
    squares_error_ += (2.0 * std::abs(distance) + rounding) * rounding;
  }

  double centre_;
  double count_;
  double sum_ = 0.0;
  double squares_;
  double error_;
  double squares_error_;
};

/// The moments of the logits that a scale makes of products.
inline ProductMoments scaled(ProductMoments of, double scale) {
  of.mean *= scale;
  of.mean_error *= scale;
  of.variance *= scale * scale;
  of.variance_error *= scale * scale;
  of.rounding *= scale;
  return of;
}

/// Takes the logits of forbidden rows off, and gives biased ones their biases: so many rows in all, each of
/// whose products in float32 is that of real numbers within `rounding`.
inline void take_edits(const SoftmaxLayer& layer, const Query& query, std::size_t edited, double rounding,
                       Workspace& workspace, DistanceSums& sums) {
  DeviationScratch& scratch = workspace.scratch<DeviationScratch>();
  auto* const ids = scratch.ids.get<TokenId>(edited);
  auto* const logits = scratch.logits.get<float>(edited);
  const kernels::LogitEdits& edits = query.edits;
  std::size_t forbidden = 0;
  edits.allowed.visit_forbidden(layer.vocab(), [&](TokenId id) { ids[forbidden++] = id; });
  std::size_t count = forbidden;
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    if (edits.allows(edits.bias[b].id)) ids[count++] = edits.bias[b].id;
  }
  scan_gathered(workspace, layer.rows(), ids, count, query.h, logits);
  for (std::size_t i = 0; i < count; ++i) {
    const auto logit = static_cast<double>(logits[i]);
    const double off = rounding + kernels::transform_slack(logit);
    if (i < forbidden) {
      sums.take_off(logit, off);
    } else {
      sums.replace(logit, static_cast<double>(kernels::add_bias(logits[i], edits.bias_of(ids[i])->bias)),
                   off);
    }
  }
}

/// The standard deviation of the logits of all allowed rows in float32, within bounds. Nothing for a soft
/// cap, where more than V/16 rows are forbidden or biased, and for contexts so long that logits may leave
/// float's range. Reads the covariance and the weights of edited rows.
inline std::optional<LogitDeviation> logit_deviation(const SoftmaxLayer& layer, const CertifiedIndex& index,
                                                     const Query& query, Workspace& workspace) {
  const LogitTransform& transform = layer.transform();
  const std::size_t rows = layer.vocab();
  const std::size_t edited = query.edits.bias_count + (rows - query.edits.allowed.count(rows));
  if (!index.covariance || transform.soft_cap != 0.0F || edited > rows / kEditedShare) return std::nullopt;
  const auto scale = static_cast<double>(transform.scale);
  const double largest = largest_sum(index, length_of(query.h, layer.dim()).high);
  if (!(std::max(largest, scale * largest) <= kLargestSum)) return std::nullopt;
  const std::optional<ProductMoments> products = index.covariance->of({query.h, layer.dim()}, workspace);
  if (!products) return std::nullopt;
  const ProductMoments logits = scaled(*products, scale);
  DistanceSums sums(logits, rows);
  if (edited > 0) {
    take_edits(layer, query, edited, scale * roundings(layer.dim() + 3) * largest, workspace, sums);
  }
  double rounding = logits.rounding * std::sqrt(static_cast<double>(rows) / sums.count());
  if (!transform.is_identity()) {
    rounding += kernels::transform_slack(std::sqrt(logits.mean * logits.mean + logits.variance));
  }
  // What a scan's own sums in float64 are off by.
  constexpr double kOfScan = 1e-8;
  const auto [least, most] = sums.variance();
  const LogitDeviation deviation = {.low = std::max(0.0, (std::sqrt(least) - rounding) * (1.0 - kOfScan)),
                                    .high = (std::sqrt(most) + rounding) * (1.0 + kOfScan)};
  if (!std::isfinite(deviation.high)) return std::nullopt;
  return deviation;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
