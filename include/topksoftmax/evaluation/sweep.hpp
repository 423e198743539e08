// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/export.hpp"

namespace topksoftmax {

/// One setting of a system: how good its answers are and how fast they come.
struct TradeOff {
  double precision;
  double speed;
};

/// The points that no other beats (at least as good in both, better in one), by falling speed and so by
/// rising precision. Of equal points the first is kept.
TOPKSOFTMAX_EXPORT std::vector<std::size_t> pareto_front(std::span<const TradeOff> points);

/// Values to try a setting at: at most `count` ≥ 2 whole numbers from `first` ≥ 1 to `last`, each about the
/// same factor above the one before.
TOPKSOFTMAX_EXPORT std::vector<std::size_t> geometric(std::size_t first, std::size_t last, std::size_t count);

}  // namespace topksoftmax
