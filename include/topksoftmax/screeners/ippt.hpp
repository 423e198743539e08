// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/export.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

/// IPPT, the inner product preserving transformation of FGD (§3.2.1, Lemma 3.1): one more than the bias's
/// coordinate turns the largest logits into the smallest Euclidean distances. With
///   U = max_i √(‖x_i‖² + b_i²),   x̄_i = [x_i; b_i; √(U² − ‖x_i‖² − b_i²)],   h̄ = [h; 1; 0]
/// every x̄ has length U, so ρ² = ‖h̄ − x̄_i‖² = ‖h‖² + 1 + U² − 2(x_i·h + b_i), that is
///   x_i·h + b_i = ½(U² + 1 + ‖h‖² − ρ²).
class TOPKSOFTMAX_EXPORT Ippt {
 public:
  /// Finds U, in float64. Cost: V·d multiply-adds.
  explicit Ippt(SoftmaxLayer layer);

  /// V, rows.
  std::size_t vocab() const { return layer_.vocab(); }
  /// Values of a transformed vector: d + 2.
  std::size_t dim() const { return layer_.dim() + 2; }
  /// U.
  double radius() const { return radius_; }

  /// x̄ of row `token` [d + 2].
  void transform_row(std::size_t token, double* out) const;
  /// h̄ of the context h [d]: [d + 2].
  void transform_context(const float* h, double* out) const;

  /// The logit of the row at `squared_distance` = ρ² of a context with ‖h‖² = `squared_norm`. ρ² is of the
  /// size of U² + ‖h‖², so what it lost to rounding is lost relative to that, not to the logit.
  double logit(double squared_distance, double squared_norm) const {
    return 0.5 * (radius_ * radius_ + 1.0 + squared_norm - squared_distance);
  }

 private:
  SoftmaxLayer layer_;
  double radius_ = 0.0;
};

}  // namespace topksoftmax
