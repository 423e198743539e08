// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/sweep.hpp"

#include <algorithm>
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

}  // namespace topksoftmax
