// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <limits>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// How wrong Implementation::sum_exp is at the most, relatively: partial sums are right to 2⁻¹⁸, exponentials
/// to 2⁻²², and x − max to 2⁻²⁴ of itself, of which more than ln V does not count.
inline constexpr double kSumExpError = 6e-6;

/// log Σ exp(x) over values that come a few at a time (the online form): Σ = sum · exp(max).
struct LogSumExp {
  float max = -std::numeric_limits<float>::infinity();
  double sum = 0.0;

  /// Makes room for a value of `x`: rescales the sum so that no exponential exceeds 1.
  void raise(float x) {
    if (x <= max) return;
    sum *= std::exp(static_cast<double>(max) - static_cast<double>(x));
    max = x;
  }

  /// −∞ when nothing was added.
  double value() const { return static_cast<double>(max) + std::log(sum); }
};

/// log(exp(a) + exp(b)), where either may be −∞.
inline double log_add_exp(double a, double b) {
  const double high = a > b ? a : b;
  const double low = a > b ? b : a;
  return low == -std::numeric_limits<double>::infinity() ? high : high + std::log1p(std::exp(low - high));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
