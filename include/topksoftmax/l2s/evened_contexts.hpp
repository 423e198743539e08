// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/chunks.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Contexts to learn clusters from: those of the caller, unless the root mean square of a few coordinates is
/// many times the median one's, as it is in some transformers. These would decide every direction alone, and
/// a step of the descent that suits the others is far too large for them. They are brought down to the
/// median.
class EvenedContexts {
 public:
  /// Of contexts that must outlive it; where coordinates stand out, it holds a copy of them.
  explicit EvenedContexts(const Contexts& contexts);

  /// What to learn from.
  const Contexts& contexts() const { return contexts_; }

  /// Turns vectors [n×d] with products of these contexts into those with the same products of the caller's.
  void fold_into(std::span<float> vectors) const;

 private:
  /// So many times the median is even enough.
  static constexpr float kEven = 8.0F;
  /// Contexts that coordinates are measured on.
  static constexpr std::size_t kMeasured = 4096;

  Eigen::RowVectorXf scales_;  ///< [d]; empty: all 1
  RowMajorMatrix copy_;
  Contexts contexts_;
};

inline EvenedContexts::EvenedContexts(const Contexts& contexts) : contexts_(contexts) {
  const Eigen::RowVectorXf spread =
      evenly_spaced(contexts, kMeasured).array().square().colwise().mean().sqrt();
  std::vector<float> ranked(spread.begin(), spread.end());
  const auto middle = ranked.begin() + static_cast<std::ptrdiff_t>(ranked.size() / 2);
  std::nth_element(ranked.begin(), middle, ranked.end());
  const float median = *middle;
  if (!(median > 0.0F && spread.maxCoeff() > kEven * median)) return;
  scales_ = spread.unaryExpr([median](float one) { return one > kEven * median ? median / one : 1.0F; });
  copy_ = chunk_of(contexts, 0, contexts.count) * scales_.asDiagonal();
  contexts_ = Contexts::of(copy_);
}

inline void EvenedContexts::fold_into(std::span<float> vectors) const {
  if (scales_.size() == 0) return;
  const Eigen::Index dim = scales_.size();
  Eigen::Map<RowMajorMatrix> rows(vectors.data(), static_cast<Eigen::Index>(vectors.size()) / dim, dim);
  rows = rows * scales_.asDiagonal();
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
