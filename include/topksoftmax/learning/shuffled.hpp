// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// All numbers below `count`, shuffled in the same way on every platform.
inline std::vector<std::size_t> shuffled(std::size_t count, std::mt19937_64& engine) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[engine() % i]);
  return order;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
