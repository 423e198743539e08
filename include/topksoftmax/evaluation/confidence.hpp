// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What the expectation of values in [0, 1] is at least, with this confidence, if `count` independent ones of
/// them have this mean: the smallest p for which count · KL(mean ‖ p) ≤ ln(1/(1 − confidence)), where KL(a ‖
/// p) = a·ln(a/p) + (1 − a)·ln((1 − a)/(1 − p)). Whatever the values' distribution, the expectation lies
/// below it in at most a share 1 − confidence of all samples (Hoeffding, "Probability inequalities for sums
/// of bounded random variables", 1963, inequality 2.1; near 1 it is much closer than his better known 2.3).
/// From `count` values no more than (1 − confidence)^(1/count) can be had, which is what a mean of 1 gives.
///
/// Cost: a hundred logarithms. Throws std::invalid_argument for a mean outside of [0, 1], a confidence that
/// is not between 0 and 1, and without values.
double mean_lower_bound(double mean, std::size_t count, double confidence);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// a·ln(a/p), whose limit at a = 0 is 0.
inline double part(double a, double p) {
  return a == 0.0 ? 0.0 : a * std::log(a / p);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline double mean_lower_bound(double mean, std::size_t count, double confidence) {
  if (!(mean >= 0.0 && mean <= 1.0)) {
    throw std::invalid_argument("mean_lower_bound: the mean is " + detail::value_text(mean) +
                                "; it must be from 0 to 1");
  }
  if (count == 0) throw std::invalid_argument("mean_lower_bound: there are no values");
  if (!(confidence > 0.0 && confidence < 1.0)) {
    throw std::invalid_argument("mean_lower_bound: the confidence is " + detail::value_text(confidence) +
                                "; it must be above 0 and below 1");
  }
  const double limit = -std::log1p(-confidence) / static_cast<double>(count);
  double low = 0.0;  // always below the bound
  double high = mean;
  for (int step = 0; step < 100; ++step) {
    const double p = 0.5 * (low + high);
    const bool possible = detail::part(mean, p) + detail::part(1.0 - mean, 1.0 - p) <= limit;
    (possible ? high : low) = p;
  }
  return low;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
