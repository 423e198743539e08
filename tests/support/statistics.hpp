// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace topksoftmax::testing {

/// Pearson's χ² of counts against probabilities, in standard deviations above its expectation (Wilson and
/// Hilferty's cube root). Cells of probability 0 must not be met: infinite then.
inline double chi_square_deviations(std::span<const std::size_t> counts,
                                    std::span<const double> probabilities) {
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  double statistic = 0.0;
  double freedom = -1.0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(total);
    if (expected <= 0.0) {
      if (counts[i] != 0) return HUGE_VAL;
      continue;
    }
    const double off = static_cast<double>(counts[i]) - expected;
    statistic += off * off / expected;
    freedom += 1.0;
  }
  if (freedom < 1.0) return 0.0;  // one cell alone is always met
  const double variance = 2.0 / (9.0 * freedom);
  return (std::cbrt(statistic / freedom) - (1.0 - variance)) / std::sqrt(variance);
}

/// The mean and the variance of logits, those of forbidden tokens left out.
struct LogitMoments {
  double mean = 0.0;
  double variance = 0.0;

  template <class Logits>
  explicit LogitMoments(const Logits& logits) {
    double count = 0.0;
    for (const auto logit : logits) {
      if (logit == -HUGE_VAL) continue;
      count += 1.0;
      mean += static_cast<double>(logit);
    }
    mean /= count;
    for (const auto logit : logits) {
      const double distance = static_cast<double>(logit) - mean;
      if (logit != -HUGE_VAL) variance += distance * distance / count;
    }
  }
};

}  // namespace topksoftmax::testing
