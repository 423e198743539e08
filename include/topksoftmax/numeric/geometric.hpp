// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Values to try a setting at: at most `count` ≥ 2 whole numbers from `first` ≥ 1 to `last`, each about the
/// same factor above the one before.
inline std::vector<std::size_t> geometric(std::size_t first, std::size_t last, std::size_t count) {
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

}  // namespace TOPKSOFTMAX_NAMESPACE
