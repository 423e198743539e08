// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The logarithm of a token's weight, exp((logit − best)/temperature).
inline double tempered(float logit, double best, double temperature) {
  return (static_cast<double>(logit) - best) / temperature;
}

/// log Σ exp(logit/temperature); −∞ where no logit is above that.
inline double log_sum_exp(std::span<const float> logits, double temperature) {
  if (logits.empty()) return -std::numeric_limits<double>::infinity();
  const float best = *std::max_element(logits.begin(), logits.end());
  if (best == -std::numeric_limits<float>::infinity()) return static_cast<double>(best);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(tempered(logit, best, temperature));
  return static_cast<double>(best) / temperature + std::log(sum);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
