// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::bench {

/// A layer's tokens in groups, those of a group next to each other.
struct RowGroups {
  std::vector<TokenId> tokens;     ///< [V]
  std::vector<std::size_t> begin;  ///< [groups + 1], where each begins among the tokens

  std::size_t count() const { return begin.size() - 1; }
  std::size_t size(std::size_t group) const { return begin[group + 1] - begin[group]; }
  std::span<const TokenId> of(std::size_t group) const {
    return std::span(tokens).subspan(begin[group], size(group));
  }
};

/// An upper bound of every logit of a group.
struct GroupBound {
  float upper;
  std::uint32_t group;
};

/// Calls visit(group) for one group after the other, the highest bound first, until all that is left is below
/// the threshold that the last call returned. The bounds are reordered.
template <class Visit>
void visit_best_first(std::span<GroupBound> bounds, const Visit& visit) {
  const auto lower = [](const GroupBound& a, const GroupBound& b) { return a.upper < b.upper; };
  std::make_heap(bounds.begin(), bounds.end(), lower);
  float threshold = -std::numeric_limits<float>::infinity();
  for (auto end = bounds.end(); end != bounds.begin() && bounds.front().upper >= threshold; --end) {
    std::pop_heap(bounds.begin(), end, lower);
    threshold = visit(std::prev(end)->group);
  }
}

/// Logits and bounds beyond this could leave float's range: nothing is bounded then.
constexpr double kLargestLogit = 1e30;

/// Rounds a length up, whatever it was computed from.
inline float outwards(double length) {
  return static_cast<float>(length * (1.0 + 1e-6));
}

/// ‖x‖ in double precision.
inline double norm_of(const float* x, std::size_t count) {
  return Eigen::Map<const Eigen::VectorXf>(x, static_cast<Eigen::Index>(count)).cast<double>().norm();
}

/// Bounds of all groups, one product each: coefficients·x + bias. Works in Workspace::screen[1] and [2].
inline std::span<GroupBound> bound_groups(const SoftmaxLayer& coefficients, const float* x,
                                          Workspace& workspace) {
  const std::size_t groups = coefficients.vocab();
  auto* const uppers = workspace.screen[1].get<float>(groups);
  auto* const bounds = workspace.screen[2].get<GroupBound>(groups);
  kernels::active().scan(coefficients.rows(), 0, groups, x, uppers);
  for (std::size_t g = 0; g < groups; ++g) bounds[g] = {uppers[g], static_cast<std::uint32_t>(g)};
  return {bounds, groups};
}

/// What a bound is too low at the most for a context of length 1, for the roundings of float32: of its own
/// product over `width` terms, of the `dim` terms behind each of these, and of the logit itself. Norms are
/// the largest of a bound's coefficients, times that of the transformation before it, and of a row.
inline double rounding_slack(std::size_t dim, std::size_t width, double bound_norm, double row_norm) {
  const auto terms = [](std::size_t n) { return 2.0 * 0x1p-24 * static_cast<double>(n + 8); };
  return terms(dim + width) * bound_norm + terms(dim) * row_norm;
}

}  // namespace topksoftmax::bench
