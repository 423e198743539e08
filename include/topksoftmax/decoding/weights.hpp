// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Weights that are added up side by side, so that their number and not the latency of an addition counts.
inline constexpr std::size_t kSumLanes = 8;

inline double sum_of(std::span<const double> weights) {
  std::array<double, kSumLanes> lanes{};
  std::size_t i = 0;
  for (; i + kSumLanes <= weights.size(); i += kSumLanes) {
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += weights[i + lane];
  }
  double sum = 0.0;
  for (const double weight : weights.subspan(i)) sum += weight;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// Where the cumulative sum of the weights, not all of them 0, passes `target`: the first i with w_0 + … +
/// w_i > target, and in any case one with w_i > 0.
inline std::size_t find_in_cumulative(std::span<const double> weights, double target) {
  constexpr std::size_t block = 64;
  std::size_t first = 0;
  for (; first + block < weights.size(); first += block) {
    const double sum = sum_of(weights.subspan(first, block));
    if (target < sum) break;
    target -= sum;
  }
  std::size_t last = weights.size();
  for (std::size_t i = first; i < weights.size(); ++i) {
    if (weights[i] <= 0.0) continue;
    last = i;
    if (target < weights[i]) return i;
    target -= weights[i];
  }
  if (last < weights.size()) return last;
  while (weights[first - 1] <= 0.0) --first;  // rounding left nothing in the last block
  return first - 1;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
