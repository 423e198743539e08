// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <Eigen/LU>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/certified/coordinates.hpp"
#include "topksoftmax/certified/layer_rows.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/stored_array.hpp"
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
  RowProjector(const SoftmaxLayer& layer, const ContextTransform& transform) : layer_(layer) {
    const Eigen::MatrixXd basis = basis_of(transform);
    if (transform.is_whole()) {
      whole_.emplace(basis, transform);
    } else {
      solved_.emplace(basis);
    }
  }

  /// The rows of some tokens. Cost: 3·d·width multiply-adds each in float64, or 2·d² in float32 where there
  /// are as many coordinates as dimensions.
  RowCoordinates at(std::span<const TokenId> tokens) const {
    constexpr std::size_t kTogether = 1024;
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

  std::size_t width() const { return whole_ ? whole_->width() : solved_->width(); }

 private:
  RowCoordinates project(std::span<const TokenId> tokens) const {
    return whole_ ? whole_->project(layer_, tokens) : solved_->project(layer_, tokens);
  }

  /// Least-squares solutions: w⊥ is orthogonal to the coordinates, but for float64's roundings.
  class LeastSquares {
   public:
    explicit LeastSquares(const Eigen::MatrixXd& basis) : basis_(basis), qr_(basis) {}

    std::size_t width() const { return static_cast<std::size_t>(basis_.cols()); }

    RowCoordinates project(const SoftmaxLayer& layer, std::span<const TokenId> tokens) const {
      const Eigen::MatrixXd rows = rows_at(layer, tokens).cast<double>();
      RowCoordinates made;
      made.inside = qr_.solve(rows.transpose()).transpose();
      made.norms = rows.rowwise().norm();
      made.outside = (rows - made.inside * basis_.transpose()).rowwise().norm() + 1e-12 * made.norms;
      return made;
    }

   private:
    Eigen::MatrixXd basis_;  ///< [d×width]
    Eigen::HouseholderQR<Eigen::MatrixXd> qr_;
  };

  /// As many coordinates as dimensions, where w⊥ := w − Bᵀw' may be anything that is short: w' is what
  /// float32 makes of B⁻ᵀw, and the rounding of Bᵀw' counts as part of w⊥.
  class Whole {
   public:
    Whole(const Eigen::MatrixXd& basis, const ContextTransform& transform)
        : width_(transform.width()),
          room_(transform.room()),
          to_(StoredArray<float>::own(
              filled_up(Eigen::PartialPivLU<Eigen::MatrixXd>(basis).inverse().transpose(), room_))),
          back_(StoredArray<float>::own(filled_up(basis.transpose(), room_))),
          lost_(roundings(kernels::combine_roundings(width_)) * transform.norm()) {}

    std::size_t width() const { return width_; }

    RowCoordinates project(const SoftmaxLayer& layer, std::span<const TokenId> tokens) const {
      const auto count = static_cast<Eigen::Index>(tokens.size());
      RowCoordinates made;
      made.inside.resize(count, static_cast<Eigen::Index>(width_));
      made.outside.resize(count);
      made.norms.resize(count);
      std::vector<float> w(room_);
      std::vector<float> coordinates(room_);
      std::vector<float> again(room_);
      for (Eigen::Index i = 0; i < count; ++i) {
        layer.copy_row(static_cast<std::size_t>(tokens[static_cast<std::size_t>(i)]), w.data());
        kernels::combine_rows(as_rows(to_, room_, WeightType::float32), w.data(), coordinates.data());
        const auto row = Eigen::Map<const Eigen::VectorXf>(w.data(), made.inside.cols()).cast<double>();
        auto inside = Eigen::Map<Eigen::VectorXf>(coordinates.data(), made.inside.cols());
        // Whatever w' is, w⊥ is what it leaves: what has overflowed leaves all.
        if (!inside.allFinite()) inside.setZero();
        kernels::combine_rows(as_rows(back_, room_, WeightType::float32), coordinates.data(), again.data());
        const auto near = Eigen::Map<const Eigen::VectorXf>(again.data(), made.inside.cols()).cast<double>();
        const double length = inside.cast<double>().norm();
        made.inside.row(i) = inside.cast<double>().transpose();
        made.norms[i] = row.norm();
        made.outside[i] = (row - near).norm() + lost_ * length + 1e-12 * made.norms[i];
      }
      return made;
    }

   private:
    std::size_t width_;
    std::size_t room_;
    StoredArray<float> to_;    ///< B⁻¹ [d×room]: B⁻ᵀw is the sum of its rows
    StoredArray<float> back_;  ///< B [width×room]
    double lost_;              ///< by rounding Bᵀw', of ‖w'‖
  };

  const SoftmaxLayer& layer_;
  std::optional<LeastSquares> solved_;
  std::optional<Whole> whole_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
