// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// One setting of a system: how good its answers are and how fast they come.
struct TradeOff {
  /// Any P@k: higher is better.
  double precision;
  /// In any unit: higher is better.
  double speed;
};

/// The points that no other beats (at least as good in both, better in one), by falling speed and so by
/// rising precision. Of equal points the first is kept.
std::vector<std::size_t> pareto_front(std::span<const TradeOff> points);

inline std::vector<std::size_t> pareto_front(std::span<const TradeOff> points) {
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

}  // namespace TOPKSOFTMAX_NAMESPACE
