// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/certified/building/trials.hpp"
#include "topksoftmax/certified/threshold.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/inverse.hpp"
#include "topksoftmax/numeric/largest.hpp"
#include "topksoftmax/numeric/linear_algebra.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What queries find in place of the trials' thresholds, which they do not know: the k-th best of the rows
/// that a prefix makes promising (threshold_from_best). Where a few coordinates say little of the others,
/// that is a nat lower.
class FoundThresholds {
 public:
  /// In M coordinates. Cost: V·d multiply-adds a trial for each of up to three widths, and O(d·M²).
  FoundThresholds(const SoftmaxLayer& layer, const CoordinateBasis& basis, const Trials& trials,
                  const Executor& executor);

  /// By a prefix of so many coordinates, for each trial [n]: between the widths that were counted, in
  /// proportion to the logarithm.
  Eigen::VectorXd at(std::size_t prefix) const;

 private:
  std::vector<std::size_t> widths_;     ///< ascending; the last is that of all dimensions
  std::vector<Eigen::VectorXd> found_;  ///< by each [n]
};

/// What a query finds whose estimates w·guess + b are these: of each guess [n×d] for the context in its
/// place.
inline Eigen::VectorXd thresholds_from(const SoftmaxLayer& layer, const Trials& trials,
                                       const RowMajorMatrix& guesses, const Executor& executor) {
  Eigen::VectorXd found(guesses.rows());
  const kernels::Rows rows = layer.products();
  for_each_part(executor, trials.count(), 1, [&](std::size_t trial, std::size_t) {
    const auto i = static_cast<Eigen::Index>(trial);
    std::vector<float> estimates(layer.vocab());
    kernels::scan_batch(rows, guesses.row(i).data(), layer.dim(), 1, estimates.data());
    std::vector<TokenId> ids(layer.vocab());
    std::iota(ids.begin(), ids.end(), TokenId{0});
    const std::size_t scored = std::min(seeds(trials.k), layer.vocab());
    put_largest_first(ids.data(), ids.size(), scored, estimates.data());
    std::vector<float> products(scored);
    kernels::scan_gathered(rows, ids.data(), scored, trials.contexts.row(i).data(), products.data());
    found[i] = static_cast<double>(kth_largest(products.data(), scored, trials.k));
  });
  return found;
}

inline FoundThresholds::FoundThresholds(const SoftmaxLayer& layer, const CoordinateBasis& basis,
                                        const Trials& trials, const Executor& executor) {
  constexpr std::array<std::size_t, 2> kCounted = {8, 32};
  const auto all = static_cast<std::size_t>(basis.R.rows());
  for (const std::size_t width : kCounted) {
    if (width < all) widths_.push_back(width);
  }
  if (all < layer.dim()) widths_.push_back(all);
  // Rows w have the coordinates R⁻ᵀQw, whose products with c are w·QᵀR⁻¹c.
  const Eigen::MatrixXd back = transposed_times(basis.Q, inverse(basis.R));
  const Eigen::MatrixXd inside = basis.of_contexts(trials.contexts.cast<double>());
  for (const std::size_t width : widths_) {
    const auto w = static_cast<Eigen::Index>(width);
    RowMajorMatrix guesses = times_transposed(inside.leftCols(w), back.leftCols(w)).cast<float>();
    // Contexts beyond what is ever bounded may leave float's range.
    guesses = guesses.unaryExpr([](float x) { return std::isfinite(x) ? x : 0.0F; });
    found_.push_back(thresholds_from(layer, trials, guesses, executor));
  }
  widths_.push_back(layer.dim());
  found_.push_back(trials.thresholds);
}

inline Eigen::VectorXd FoundThresholds::at(std::size_t prefix) const {
  const auto above = std::lower_bound(widths_.begin(), widths_.end(), prefix);
  if (above == widths_.end()) return found_.back();
  const auto next = static_cast<std::size_t>(above - widths_.begin());
  if (next == 0 || *above == prefix) return found_[next];
  const auto logarithm = [](std::size_t width) { return std::log(static_cast<double>(width)); };
  const double from = logarithm(widths_[next - 1]);
  const double share = (logarithm(prefix) - from) / (logarithm(*above) - from);
  return (1.0 - share) * found_[next - 1] + share * found_[next];
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
