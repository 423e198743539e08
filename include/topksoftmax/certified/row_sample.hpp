// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/sampled_log_z.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The normal distribution's two-sided quantile of 99.9 %.
inline constexpr double kThreeNines = 3.2905;
/// What is expected of the mean square of exp(logit − estimate): it says how many rows are read at first.
inline constexpr double kExpectedSpread = 1.2;
/// Beyond this share of the vocabulary all rows are read.
inline constexpr std::size_t kSampledShare = 4;

/// What sampling works in.
struct RowSampleScratch {
  ScratchBuffer weights;     ///< exp((estimate − the best one)/temperature) of all rows
  ScratchBuffer priorities;  ///< weight/u of all rows, u uniform in (0, 1)
  ScratchBuffer ids;         ///< rows that were read …
  ScratchBuffer sizes;       ///< … their weights …
  ScratchBuffer logits;      ///< … and their logits
};

/// How the mass of weights lies: by their logarithms, of which the largest is 0, in steps of an eighth.
class WeightHistogram {
 public:
  void add(float logarithm, float weight) {
    const float step = std::min(-logarithm * kPerNat, static_cast<float>(kSteps - 1));
    masses_[static_cast<std::size_t>(step)] += static_cast<double>(weight);
  }

  double sum() const { return std::accumulate(masses_.begin(), masses_.end(), 0.0); }

  /// The largest τ for which τ·Σ(weights below τ) is at most `most`, within a step.
  double limit(double most) const {
    double below = 0.0;
    double found = most / sum();
    for (std::size_t step = kSteps; step-- > 0;) {
      const double upper = std::exp(-static_cast<double>(step) / static_cast<double>(kPerNat));
      below += masses_[step];
      if (!(below > 0.0)) continue;
      if (upper * below > most) return std::max(found, most / below);
      found = upper;
    }
    return found;
  }

 private:
  static constexpr std::size_t kSteps = 256;
  static constexpr float kPerNat = 8.0F;
  std::array<double, kSteps> masses_{};
};

/// Σ exp((logit − best)/temperature) over rows that are drawn, each with the probability min(1, weight/τ) and
/// independently (Poisson sampling), and counted 1/that probability times (Horvitz and Thompson 1952): an
/// unbiased sum. A row's random number stays the same while τ falls: more rows are read then, none twice.
class RowSample {
 public:
  RowSample(const BoundedQuery& bounded, const BoundedRows& rows, const SampledLogZOptions& options)
      : bounded_(bounded), rows_(rows), options_(options) {
    RowSampleScratch& scratch = bounded.workspace.scratch<RowSampleScratch>();
    weights_ = scratch.weights.get<float>(rows.count);
    priorities_ = scratch.priorities.get<float>(rows.count);
    ids_ = scratch.ids.get<TokenId>(rows.count);
    sizes_ = scratch.sizes.get<float>(rows.count);
    logits_ = scratch.logits.get<float>(rows.count);
    best_ = kernels::max(rows.estimates, rows.count);
    if (!std::isfinite(best_)) return;
    const auto inverse = static_cast<float>(1.0 / options.temperature);
    for (std::size_t i = 0; i < rows.count; ++i) priorities_[i] = (rows.estimates[i] - best_) * inverse;
    kernels::exp(priorities_, rows.count, 0.0F, weights_);
    for (std::size_t i = 0; i < rows.count; ++i) {
      if (weights_[i] > 0.0F) histogram_.add(priorities_[i], weights_[i]);
    }
    // A number has the bits for two rows.
    constexpr int kBits = 23;
    for (std::size_t i = 0; i < rows.count; i += 2) {
      const std::uint64_t bits = split_mix(options.seed, i / 2);
      const auto uniform = [](std::uint64_t some) {
        return (static_cast<float>(some & ((1U << kBits) - 1)) + 0.5F) * 0x1p-23F;
      };
      priorities_[i] = weights_[i] / uniform(bits);
      if (i + 1 < rows.count) priorities_[i + 1] = weights_[i + 1] / uniform(bits >> 32);
    }
  }

  float best() const { return best_; }
  std::size_t count() const { return count_; }
  const WeightHistogram& histogram() const { return histogram_; }

  /// How many rows are read at τ.
  std::size_t count_at(double limit) const {
    const auto least = static_cast<float>(limit);
    std::size_t count = 0;
    for (std::size_t i = 0; i < rows_.count; ++i) count += priorities_[i] > least ? 1 : 0;
    return count;
  }

  /// Reads those rows that are read at τ, which falls from call to call.
  void extend_to(double limit) {
    const auto least = static_cast<float>(limit);
    const std::size_t begin = count_;
    for (std::size_t i = 0; i < rows_.count; ++i) {
      if (!(priorities_[i] > least) || priorities_[i] > most_) continue;
      ids_[count_] = bounded_.index.token(rows_.place(i));
      sizes_[count_] = weights_[i];
      ++count_;
    }
    scan_gathered(bounded_.workspace, bounded_.layer.rows(), ids_ + begin, count_ - begin, bounded_.query.h,
                  logits_ + begin);
    most_ = least;
  }

  struct Sum {
    double value = 0.0;
    double variance = 0.0;  ///< an unbiased estimate of that of the value
  };

  Sum sum() const {
    Sum sum;
    for (std::size_t i = 0; i < count_; ++i) {
      const double x = std::exp(tempered(logits_[i], static_cast<double>(best_), options_.temperature));
      const double probability = std::min(1.0, static_cast<double>(sizes_[i]) / static_cast<double>(most_));
      sum.value += x / probability;
      sum.variance += (1.0 - probability) / (probability * probability) * x * x;
    }
    return sum;
  }

 private:
  const BoundedQuery& bounded_;
  const BoundedRows& rows_;
  const SampledLogZOptions& options_;
  float* weights_;
  float* priorities_;
  TokenId* ids_;
  float* sizes_;
  float* logits_;
  WeightHistogram histogram_;
  float best_ = 0.0F;
  float most_ = std::numeric_limits<float>::infinity();  ///< τ
  std::size_t count_ = 0;
};

/// All rows by their prefixes, in the order of the index.
inline BoundedRows every_row(const BoundedQuery& bounded) {
  if (!bounded.index.has_boxes()) return all_rows(bounded);
  const std::size_t blocks = bounded.index.prefixes.blocks().blocks();
  auto* const all = bounded.scratch().blocks.get<TokenId>(blocks);
  for (std::size_t i = 0; i < blocks; ++i) all[i] = static_cast<TokenId>(i);
  return open_blocks(bounded, {all, blocks});
}

/// Estimates of their logits.
inline const float* logit_estimates(const BoundedQuery& bounded, const BoundedRows& rows) {
  const LogitTransform& transform = bounded.layer.transform();
  if (transform.is_identity()) return rows.estimates;
  auto* const logits = bounded.scratch().transformed.get<float>(rows.count);
  std::copy_n(rows.estimates, rows.count, logits);
  kernels::transform(transform, logits, rows.count);
  return logits;
}

/// Σ exp((logit − best)/temperature) over the allowed tokens that the query biases.
inline double sum_of_biased(const BoundedQuery& bounded, double best, double temperature) {
  const kernels::LogitEdits& edits = bounded.query.edits;
  double sum = 0.0;
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    if (!edits.allows(edits.bias[b].id)) continue;
    float logit = 0.0F;
    kernels::scan_gathered(bounded.layer.rows(), &edits.bias[b].id, 1, bounded.query.h, &logit);
    sum += std::exp(tempered(kernels::add_bias(logit, edits.bias[b].bias), best, temperature));
  }
  return sum;
}

/// log Z from the logits of all rows.
inline SampledLogZ log_z_of_all(const BoundedQuery& bounded, double temperature) {
  const kernels::Rows& rows = bounded.layer.rows();
  auto* const logits = bounded.scratch().logits.get<float>(rows.count);
  scan(bounded.workspace, rows, 0, rows.count, bounded.query.h, logits);
  kernels::apply_edits(bounded.query.edits, rows.count, logits);
  return {.log_z = log_sum_exp({logits, rows.count}, temperature), .rows_read = rows.count};
}

/// log Z of a context that is bounded: from a sample, or from all rows where its bounds do not hold or so
/// many rows would be read that a scan is better.
inline SampledLogZ sample_log_z(const BoundedQuery& bounded, const SampledLogZOptions& options) {
  constexpr double kMostShrinking = 0.7;
  if (!bounded.bounds.usable) return log_z_of_all(bounded, options.temperature);
  BoundedRows rows = every_row(bounded);
  rows.estimates = logit_estimates(bounded, rows);
  RowSample sample(bounded, rows, options);
  const double best = static_cast<double>(sample.best());
  if (!std::isfinite(best)) return log_z_of_all(bounded, options.temperature);
  const std::size_t most = bounded.index.rows() / kSampledShare;
  const double biased = sum_of_biased(bounded, best, options.temperature);
  // log(1 + x) falls faster below than it rises above.
  const double wanted = 1.0 - std::exp(-options.error);
  const double deviation = wanted * sample.histogram().sum() / kThreeNines;
  double limit = sample.histogram().limit(deviation * deviation / kExpectedSpread);
  for (;;) {
    if (sample.count_at(limit) > most) return log_z_of_all(bounded, options.temperature);
    sample.extend_to(limit);
    const RowSample::Sum sum = sample.sum();
    const double total = sum.value + biased;
    const double error = kThreeNines * std::sqrt(sum.variance) / total;
    if (error <= wanted) {
      return {.log_z = best / options.temperature + std::log(total),
              .error = -std::log1p(-error),
              .rows_read = sample.count() + bounded.query.edits.bias_count};
    }
    limit *= std::min(kMostShrinking, 0.9 * (wanted / error) * (wanted / error));
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
