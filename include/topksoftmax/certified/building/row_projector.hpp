// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/certified/building/panel_matrix.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/numeric/inverse.hpp"
#include "topksoftmax/numeric/linear_algebra.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Some rows of a layer in the coordinates that they are bounded in: see CertifiedScreener for the symbols.
struct RowCoordinates {
  Eigen::MatrixXd inside;   ///< w' [n×width]
  Eigen::VectorXd outside;  ///< ‖w⊥‖ [n], not less
  Eigen::VectorXd norms;    ///< ‖w‖ [n]
};

/// Puts rows of a layer into coordinates, some at a time: all of them take more memory than the layer.
class RowProjector {
 public:
  /// Refers to the layer.
  RowProjector(const SoftmaxLayer& layer, const ContextTransform& transform)
      : layer_(layer), width_(transform.width()) {
    if (transform.is_identity()) return;
    if (transform.is_whole()) {
      whole_.emplace(transform);
    } else {
      solved_.emplace(transform);
    }
  }

  /// The rows of some tokens. Cost: 2·d·width multiply-adds each in float64, or 2·d² in float32 where there
  /// are as many coordinates as dimensions, or O(d) where these are the rows' own.
  RowCoordinates at(std::span<const TokenId> tokens) const {
    constexpr std::size_t kTogether = 256;
    if (tokens.size() <= kTogether) return project(tokens);
    RowCoordinates made;
    const auto count = static_cast<Eigen::Index>(tokens.size());
    made.inside.resize(count, static_cast<Eigen::Index>(width()));
    made.outside.resize(count);
    made.norms.resize(count);
    for (std::size_t first = 0; first < tokens.size(); first += kTogether) {
      const RowCoordinates part = project(tokens.subspan(first, std::min(kTogether, tokens.size() - first)));
      const auto at = static_cast<Eigen::Index>(first);
      made.inside.middleRows(at, part.inside.rows()) = part.inside;
      made.outside.segment(at, part.outside.size()) = part.outside;
      made.norms.segment(at, part.norms.size()) = part.norms;
    }
    return made;
  }

  std::size_t width() const { return width_; }

 private:
  RowCoordinates project(std::span<const TokenId> tokens) const {
    if (whole_) return whole_->project(layer_, tokens);
    if (solved_) return solved_->project(layer_, tokens);
    const Eigen::MatrixXd rows = rows_at(layer_, tokens).cast<double>();
    return {.inside = rows, .outside = Eigen::VectorXd::Zero(rows.rows()), .norms = rows.rowwise().norm()};
  }

  /// Least-squares solutions (QQᵀRᵀ)⁻¹Qw: w⊥ is orthogonal to the coordinates, but for float64's roundings.
  class LeastSquares {
   public:
    explicit LeastSquares(const ContextTransform& transform) : basis_(basis_of(transform)) {
      const Eigen::MatrixXd Q = stored(transform.Q(), transform.room(), transform.width());  // [d×width]
      solution_ = times_transposed(inverse(transposed_times(Q, basis_)), Q);
    }

    RowCoordinates project(const SoftmaxLayer& layer, std::span<const TokenId> tokens) const {
      const Eigen::MatrixXd rows = rows_at(layer, tokens).cast<double>();
      RowCoordinates made;
      made.inside = times_transposed(rows, solution_);
      made.norms = rows.rowwise().norm();
      made.outside = (rows - times_transposed(made.inside, basis_)).rowwise().norm() + 1e-12 * made.norms;
      return made;
    }

   private:
    Eigen::MatrixXd basis_;     ///< [d×width]
    Eigen::MatrixXd solution_;  ///< [width×d]
  };

  /// As many coordinates as dimensions, where w⊥ := w − Bᵀw' may be anything that is short: w' is what
  /// float32 makes of B⁻ᵀw, and the rounding of Bᵀw' counts as part of w⊥.
  class Whole {
   public:
    explicit Whole(const ContextTransform& transform) : Whole(basis_of(transform), transform) {}

    RowCoordinates project(const SoftmaxLayer& layer, std::span<const TokenId> tokens) const {
      const RowMajorMatrix rows = rows_at(layer, tokens);
      RowMajorMatrix inside = to_.times(rows);
      // Whatever w' is, w⊥ is what it leaves: what has overflowed leaves all.
      for (Eigen::Index i = 0; i < inside.rows(); ++i) {
        if (!inside.row(i).allFinite()) inside.row(i).setZero();
      }
      const RowMajorMatrix near = back_.times(inside);
      RowCoordinates made;
      made.inside = inside.leftCols(width_).cast<double>();
      made.norms = rows.cast<double>().rowwise().norm();
      made.outside = (rows.cast<double>() - near.leftCols(width_).cast<double>()).rowwise().norm() +
                     lost_ * made.inside.rowwise().norm() + 1e-12 * made.norms;
      return made;
    }

   private:
    Whole(const Eigen::MatrixXd& basis, const ContextTransform& transform)
        : width_(static_cast<Eigen::Index>(transform.width())),
          to_(inverse(basis).transpose()),
          back_(basis.transpose()),
          lost_(roundings(kernels::combine_roundings(transform.width())) * transform.norm()) {}

    Eigen::Index width_;
    PanelMatrix to_;    ///< B⁻¹ [d×width]
    PanelMatrix back_;  ///< B [width×d]
    double lost_;       ///< by rounding Bᵀw', of ‖w'‖
  };

  const SoftmaxLayer& layer_;
  std::size_t width_;
  // Neither where coordinates are the rows' own.
  std::optional<LeastSquares> solved_;
  std::optional<Whole> whole_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
