// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace topksoftmax {

std::vector<std::size_t> pareto_front(std::span<const TradeOff> points) {
  std::vector<std::size_t> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (points[a].speed != points[b].speed) return points[a].speed > points[b].speed;
    return points[a].precision > points[b].precision;
  });
  std::vector<std::size_t> front;
  for (const std::size_t i : order) {
    if (front.empty() || points[i].precision > points[front.back()].precision) front.push_back(i);
  }
  return front;
}

std::vector<std::size_t> geometric(std::size_t first, std::size_t last, std::size_t count) {
  std::vector<std::size_t> values;
  for (std::size_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count - 1);
    const double value =
        static_cast<double>(first) * std::pow(static_cast<double>(last) / static_cast<double>(first), share);
    const auto rounded = static_cast<std::size_t>(std::llround(value));
    if (values.empty() || rounded > values.back()) values.push_back(rounded);
  }
  return values;
}

}  // namespace topksoftmax
