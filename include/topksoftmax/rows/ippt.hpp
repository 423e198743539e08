// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

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

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// [x_i; b_i] of row `token`; `row` is scratch [d].
inline void copy_biased_row(const SoftmaxLayer& layer, std::size_t token, std::vector<float>& row,
                            double* out) {
  layer.copy_row(token, row.data());
  std::copy(row.begin(), row.end(), out);
  out[row.size()] = layer.has_bias() ? static_cast<double>(layer.rows().bias[token]) : 0.0;
}

inline double squared_norm(const double* values, std::size_t count) {
  return std::inner_product(values, values + count, values, 0.0);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Ippt::Ippt(SoftmaxLayer layer) : layer_(std::move(layer)) {
  std::vector<float> row(layer_.dim());
  std::vector<double> biased(row.size() + 1);
  double largest = 0.0;
  for (std::size_t token = 0; token < layer_.vocab(); ++token) {
    detail::copy_biased_row(layer_, token, row, biased.data());
    largest = std::max(largest, detail::squared_norm(biased.data(), biased.size()));
  }
  radius_ = std::sqrt(largest);
}

inline void Ippt::transform_row(std::size_t token, double* out) const {
  const std::size_t biased = layer_.dim() + 1;
  std::vector<float> row(layer_.dim());
  detail::copy_biased_row(layer_, token, row, out);
  out[biased] = std::sqrt(std::max(0.0, radius_ * radius_ - detail::squared_norm(out, biased)));
}

inline void Ippt::transform_context(const float* h, double* out) const {
  std::copy_n(h, layer_.dim(), out);
  out[layer_.dim()] = 1.0;
  out[layer_.dim() + 1] = 0.0;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
