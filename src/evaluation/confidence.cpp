// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/confidence.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

namespace topksoftmax {
namespace {

/// a·ln(a/p), whose limit at a = 0 is 0.
double part(double a, double p) {
  return a == 0.0 ? 0.0 : a * std::log(a / p);
}

}  // namespace

double mean_lower_bound(double mean, std::size_t count, double confidence) {
  if (!(mean >= 0.0 && mean <= 1.0)) {
    throw std::invalid_argument("mean_lower_bound: the mean is " + std::to_string(mean) +
                                "; it must be from 0 to 1");
  }
  if (count == 0) throw std::invalid_argument("mean_lower_bound: there are no values");
  if (!(confidence > 0.0 && confidence < 1.0)) {
    throw std::invalid_argument("mean_lower_bound: the confidence is " + std::to_string(confidence) +
                                "; it must be above 0 and below 1");
  }
  const double limit = -std::log1p(-confidence) / static_cast<double>(count);
  double low = 0.0;  // always below the bound
  double high = mean;
  for (int step = 0; step < 100; ++step) {
    const double p = 0.5 * (low + high);
    const bool possible = part(mean, p) + part(1.0 - mean, 1.0 - p) <= limit;
    (possible ? high : low) = p;
  }
  return low;
}

}  // namespace topksoftmax
