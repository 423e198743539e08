// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>

#include "screeners/context_transform.hpp"
#include "screeners/coordinate_chooser.hpp"
#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// A few contexts with all their logits, to see what an index makes of them.
struct Trials {
  /// Without contexts there is nothing to see. k is clamped to V.
  Trials(const SoftmaxLayer& layer, const Eigen::MatrixXd& W, RowMajorMatrix some, std::size_t k);

  RowMajorMatrix contexts;     ///< [n×d]
  Eigen::MatrixXd logits;      ///< [V×n]
  Eigen::VectorXd thresholds;  ///< the k-th best logit of each [n]
};

/// Chooses what CertifiedOptions leave open by the work that it makes for some contexts.
class BoundChooser {
 public:
  /// What the coordinates are, and all options.
  struct Choice {
    ContextTransform transform;
    CertifiedOptions options;
  };

  /// Refers to all of them.
  BoundChooser(const SoftmaxLayer& layer, const Eigen::MatrixXd& W, const CoordinateChooser& coordinates,
               const Trials& trials, const CertifiedOptions& options)
      : layer_(layer), W_(W), coordinates_(coordinates), trials_(trials), options_(options) {}

  Choice choose() const;

 private:
  struct Estimate;

  /// Coordinates in all with this prefix, where `least` are wanted at the least.
  std::size_t width(std::size_t prefix, std::size_t least) const;
  double passing_cost(std::size_t prefix, std::size_t least_width) const;
  ContextTransform transform(std::size_t prefix, std::size_t least) const;
  void choose_prefix(std::size_t least_width, Estimate& estimate) const;
  Estimate choose_for(std::size_t least_width) const;
  std::size_t choose_width(double rows_passing) const;
  std::size_t width_of_rows() const;

  const SoftmaxLayer& layer_;
  const Eigen::MatrixXd& W_;
  const CoordinateChooser& coordinates_;
  const Trials& trials_;
  const CertifiedOptions& options_;
};

}  // namespace topksoftmax
