// SPDX-License-Identifier: Apache-2.0
#include "harness/command_line/nearest_name.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace topksoftmax::bench {
namespace {

/// Letters that are put in, left out, replaced, or swapped with the next, to make one of the other.
std::size_t changes(std::string_view from, std::string_view to) {
  // needed[i][j] makes the first j letters of the first i.
  std::vector<std::vector<std::size_t>> needed(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        needed[i][j] = i + j;
        continue;
      }
      const bool same = from[i - 1] == to[j - 1];
      needed[i][j] =
          std::min({needed[i - 1][j - 1] + (same ? 0 : 1), needed[i - 1][j] + 1, needed[i][j - 1] + 1});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        needed[i][j] = std::min(needed[i][j], needed[i - 2][j - 2] + 1);
      }
    }
  }
  return needed.back().back();
}

}  // namespace

std::string did_you_mean(std::string_view unknown, std::span<const std::string> names) {
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  std::string_view nearest;
  for (const std::string& name : names) {
    const std::size_t needed = changes(unknown, name);
    const std::size_t most = std::max<std::size_t>(std::max(unknown.size(), name.size()) / 3, 1);
    if (needed > most || needed >= fewest) continue;
    fewest = needed;
    nearest = name;
  }
  return nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?";
}

}  // namespace topksoftmax::bench
