// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The contexts without those that an earlier one is equal to, bit for bit, in their order. Texts that begin
/// alike have equal contexts: these are no evidence of what others look like, and one that is learned from
/// cannot be judged by. Cost: O(N·log N) comparisons of rows.
inline RowMajorMatrix distinct_contexts(RowMajorMatrix contexts) {
  const std::size_t row_bytes = static_cast<std::size_t>(contexts.cols()) * sizeof(float);
  const auto compared = [&](Eigen::Index a, Eigen::Index b) {
    return std::memcmp(contexts.row(a).data(), contexts.row(b).data(), row_bytes);
  };
  std::vector<Eigen::Index> equal_together(static_cast<std::size_t>(contexts.rows()));
  std::iota(equal_together.begin(), equal_together.end(), Eigen::Index{0});
  std::sort(equal_together.begin(), equal_together.end(), [&](Eigen::Index a, Eigen::Index b) {
    const int order = compared(a, b);
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<Eigen::Index> kept;
  for (std::size_t i = 0; i < equal_together.size(); ++i) {
    const bool repeated = i > 0 && compared(equal_together[i - 1], equal_together[i]) == 0;
    if (!repeated) kept.push_back(equal_together[i]);
  }
  if (kept.size() == equal_together.size()) return contexts;
  std::sort(kept.begin(), kept.end());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto to = static_cast<Eigen::Index>(i);
    if (kept[i] != to) contexts.row(to) = contexts.row(kept[i]);
  }
  contexts.conservativeResize(static_cast<Eigen::Index>(kept.size()), Eigen::NoChange);
  return contexts;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
