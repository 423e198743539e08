// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/numeric/half.hpp"
#include "topksoftmax/numeric/inverse.hpp"
#include "topksoftmax/numeric/linear_algebra.hpp"
#include "topksoftmax/numeric/products.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/numeric/symmetric_eigen.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/prefix_writer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Coordinates h' = RQh of contexts, and with them those of rows: see CertifiedScreener.
struct CoordinateBasis {
  Eigen::MatrixXd Q;  ///< [width×d], orthonormal rows
  Eigen::MatrixXd R;  ///< [width×width]

  /// The contexts' and the rows' own coordinates.
  static CoordinateBasis identity(std::size_t dim) {
    const auto d = static_cast<Eigen::Index>(dim);
    return {Eigen::MatrixXd::Identity(d, d), Eigen::MatrixXd::Identity(d, d)};
  }
  bool is_identity() const { return has_own_directions() && R.isIdentity(0.0); }

  /// X·Qᵀ of rows X [n×d]. Where Q is the identity, as it is for balanced coordinates of all directions, that
  /// is X, and costs nothing.
  Eigen::MatrixXd within(const Eigen::MatrixXd& X) const {
    if (has_own_directions()) return X;
    return times_transposed(X, Q);
  }

  /// RQ, likewise.
  Eigen::MatrixXd product() const {
    if (has_own_directions()) return R;
    return times(R, Q);
  }

  /// h' of contexts [n×d].
  Eigen::MatrixXd of_contexts(const Eigen::MatrixXd& X) const {
    if (is_identity()) return X;
    return times_transposed(within(X), R);
  }

  /// w' of rows [n×d]: the solution of QᵀRᵀw' = w within Q's rows.
  Eigen::MatrixXd of_rows(const Eigen::MatrixXd& X) const {
    if (is_identity()) return X;
    return times(within(X), inverse(R));
  }

 private:
  bool has_own_directions() const { return Q.rows() == Q.cols() && Q.isIdentity(0.0); }
};

/// Coordinates of any width, learned from the rows of a layer and from contexts. Not for several threads at
/// once: directions are found when they are first wanted, and balanced coordinates of full width need none.
class LearnedCoordinates {
 public:
  /// Of Σ wwᵀ [d×d] over the rows, but for a factor. Contexts [N×d] may be empty. Cost: O(N·d²). Throws Error
  /// for coordinates of the contexts without any.
  LearnedCoordinates(const Eigen::MatrixXd& row_gram, const RowMajorMatrix& contexts, BoundCoordinates kind,
                     const Executor& executor);

  /// Those of a width of at most d. Cost: O(d²·width + width³), and once that of directions().
  CoordinateBasis basis(std::size_t width, const Executor& executor) const;

  /// Some of them for rows that are rounded to a few bits, where all of `rounded` coordinates have one step:
  /// each is divided by the root of what rows typically have of it, those behind by as much as the last.
  /// (Steps that grow with a coordinate cost more where contexts have much of it; of the powers between, the
  /// root left fewest rows on every head.)
  CoordinateBasis stretched(CoordinateBasis basis, std::size_t rounded) const;

  /// Orthonormal columns [d×d]: the rows of Q are the leading ones, whatever the width. Cost: O(d³), once.
  const Eigen::MatrixXd& directions(const Executor& executor) const;

  /// What lies along each direction of E‖w‖², in shares of it [d]. Cost: O(d³).
  Eigen::VectorXd row_shares(const Executor& executor) const;

 private:
  BoundCoordinates kind_;
  Eigen::MatrixXd contexts_;                           ///< E[hhᵀ] [d×d], with a trace of 1, shrunk
  Eigen::MatrixXd rows_;                               ///< E[wwᵀ] [d×d], likewise
  mutable std::optional<Eigen::MatrixXd> directions_;  ///< eigenvectors of one of them, or of their sum
};

/// What eigenvalues of zero become at the least: its roots, either way, are floats.
inline constexpr double kLeastLift = 1e-30;

/// What is added to the eigenvalues of a positive semidefinite [n×n] matrix, so that none is too small.
inline double lift_of(double trace, Eigen::Index n) {
  return std::max(1e-3 * trace / static_cast<double>(n), kLeastLift);
}

/// The root of such a matrix, with its eigenvalues lifted.
inline Eigen::MatrixXd lifted_root(const Eigen::MatrixXd& S, const Executor& executor) {
  const SymmetricEigen eigen = symmetric_eigen(S, executor);
  const Eigen::ArrayXd values = eigen.values.cwiseMax(0.0).array() + lift_of(eigen.values.sum(), S.rows());
  return times_transposed(eigen.vectors * values.sqrt().matrix().asDiagonal(), eigen.vectors);
}

inline Eigen::MatrixXd normalized(Eigen::MatrixXd S) {
  const double trace = S.trace();
  if (trace > 0.0) S /= trace;
  return S;
}

/// What the moment S [d×d] of a sample, with a trace of 1, tells of that of all: S shrunk towards I/d. A few
/// contexts say nothing of most directions, in which others differ; many hardly shrink. Chen, Wiesel, Eldar
/// and Hero, "Shrinkage algorithms for MMSE covariance estimation" (2010), eq. 23.
inline Eigen::MatrixXd shrunk(Eigen::MatrixXd S, std::size_t count) {
  const auto d = static_cast<double>(S.rows());
  const double squares = S.squaredNorm();
  const double certain = (static_cast<double>(count) + 1.0 - 2.0 / d) * (squares - 1.0 / d);
  const double uncertain = (1.0 - 2.0 / d) * squares + 1.0;
  const double share = certain > uncertain ? uncertain / certain : 1.0;
  S *= 1.0 - share;
  S.diagonal().array() += share / d;
  return S;
}

/// LLᵀ of a positive semidefinite matrix whose eigenvalues are lifted: further where roundings have left one
/// below 0.
inline Eigen::LLT<Eigen::MatrixXd> lifted_cholesky(const Eigen::MatrixXd& S) {
  constexpr int kTries = 30;
  Eigen::LLT<Eigen::MatrixXd> root;
  double lift = lift_of(S.trace(), S.rows());
  for (int i = 0; i < kTries; ++i) {
    Eigen::MatrixXd lifted = S;
    lifted.diagonal().array() += lift;
    root.compute(lifted);
    if (root.info() == Eigen::Success) break;
    lift *= 2.0;
  }
  return root;
}

/// QᵀSQ.
inline Eigen::MatrixXd along(const MatrixView& Q, const MatrixView& S) {
  return times(transposed_times(Q, S), Q);
}

/// R for which E[h'h'ᵀ] and E[w'w'ᵀ] are equal and diagonal, given both moments within Q's rows: Λ^¼UᵀL⁻¹,
/// where LLᵀ is the contexts' moment, lifted, and UΛUᵀ = Lᵀ·E[wwᵀ]·L.
inline Eigen::MatrixXd balance(const Eigen::MatrixXd& contexts, const Eigen::MatrixXd& rows,
                               const Executor& executor) {
  const Eigen::LLT<Eigen::MatrixXd> root = lifted_cholesky(contexts);
  const Eigen::MatrixXd L = root.matrixL();
  const SymmetricEigen joint = symmetric_eigen(along(L, rows), executor);
  const Eigen::VectorXd lambda = joint.values.cwiseMax(1e-9 * std::max(joint.values.maxCoeff(), 1e-30));
  return lambda.array().pow(0.25).matrix().asDiagonal() * root.matrixU().solve(joint.vectors).transpose();
}

inline LearnedCoordinates::LearnedCoordinates(const Eigen::MatrixXd& row_gram, const RowMajorMatrix& contexts,
                                              BoundCoordinates kind, const Executor& executor)
    : kind_(kind),
      contexts_(normalized(Eigen::MatrixXd::Identity(row_gram.rows(), row_gram.cols()))),
      rows_(normalized(row_gram)) {
  if (contexts.rows() > 0) {
    const float largest = contexts.cwiseAbs().maxCoeff();  // whose square may be no float
    const RowMajorMatrix H = contexts / (largest > 0.0F ? largest : 1.0F);
    contexts_ = shrunk(normalized(gram(H, executor).cast<double>()), static_cast<std::size_t>(H.rows()));
  } else if (kind == BoundCoordinates::contexts) {
    throw Error(
        "certified: the contexts' own coordinates are wanted, but "
        "there are no contexts");
  }
}

inline const Eigen::MatrixXd& LearnedCoordinates::directions(const Executor& executor) const {
  if (!directions_) {
    const Eigen::MatrixXd spread = kind_ == BoundCoordinates::contexts ? contexts_
                                   : kind_ == BoundCoordinates::rows   ? rows_
                                                                       : Eigen::MatrixXd(contexts_ + rows_);
    directions_ = symmetric_eigen(spread, executor).vectors;
  }
  return *directions_;
}

inline CoordinateBasis LearnedCoordinates::basis(std::size_t width, const Executor& executor) const {
  const bool whole = static_cast<Eigen::Index>(width) == rows_.cols();
  if (whole && kind_ == BoundCoordinates::balanced) {  // whichever directions Q has
    return {Eigen::MatrixXd::Identity(rows_.rows(), rows_.cols()), balance(contexts_, rows_, executor)};
  }
  const Eigen::MatrixXd Q = directions(executor).leftCols(static_cast<Eigen::Index>(width));
  const Eigen::MatrixXd rows = along(Q, rows_);
  switch (kind_) {
    case BoundCoordinates::contexts:
      return {Q.transpose(), Eigen::MatrixXd::Identity(Q.cols(), Q.cols())};
    case BoundCoordinates::rows:
      return {Q.transpose(), lifted_root(rows, executor)};
    case BoundCoordinates::balanced:
      break;
  }
  return {Q.transpose(), balance(along(Q, contexts_), rows, executor)};
}

inline CoordinateBasis LearnedCoordinates::stretched(CoordinateBasis basis, std::size_t rounded) const {
  const auto last = static_cast<Eigen::Index>(std::max<std::size_t>(rounded, 1)) - 1;
  // Rows' coordinates are the solution of QᵀRᵀw' = w.
  const Eigen::MatrixXd within = basis.within(basis.within(rows_).transpose());
  const Eigen::MatrixXd moments = along(inverse(basis.R), within);
  const Eigen::VectorXd typical = moments.diagonal().cwiseMax(kLeastLift).cwiseSqrt();
  for (Eigen::Index j = 0; j < basis.R.rows(); ++j) basis.R.row(j) *= std::sqrt(typical[std::min(j, last)]);
  return basis;
}

inline Eigen::VectorXd LearnedCoordinates::row_shares(const Executor& executor) const {
  return along(directions(executor), rows_).diagonal();
}

/// A matrix in rows, each filled up with zeros to `room` columns.
inline RowMajorMatrix filled_up(const Eigen::MatrixXd& m, std::size_t room) {
  RowMajorMatrix rows = RowMajorMatrix::Zero(m.rows(), static_cast<Eigen::Index>(room));
  rows.leftCols(m.cols()) = m.cast<float>();
  return rows;
}

/// The nearest float16 of each value.
inline StoredArray<Float16> halves(const RowMajorMatrix& m) {
  std::vector<Float16> values;
  values.reserve(static_cast<std::size_t>(m.size()));
  for (Eigen::Index i = 0; i < m.size(); ++i) {
    values.push_back({Eigen::numext::bit_cast<std::uint16_t>(Eigen::half(m.data()[i]))});
  }
  return StoredArray<Float16>::own(std::move(values));
}

/// The first `width` of every `room` values.
template <class T>
Eigen::MatrixXd stored(const StoredArray<T>& values, std::size_t room, std::size_t width) {
  Eigen::MatrixXd m(static_cast<Eigen::Index>(values.size() / room), static_cast<Eigen::Index>(width));
  for (Eigen::Index row = 0; row < m.rows(); ++row) {
    const T* const of_row = values.data() + static_cast<std::size_t>(row) * room;
    std::transform(of_row, of_row + width, m.row(row).begin(), [](T x) { return static_cast<double>(x); });
  }
  return m;
}

/// What is stored of the coordinates in bytes of some rows [rows×width].
inline Eigen::MatrixXd stored(const PrefixStore& rows, std::size_t width) {
  const std::size_t count = rows.blocks().rows;
  Eigen::MatrixXd m(static_cast<Eigen::Index>(count), static_cast<Eigen::Index>(width));
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t j = 0; j < width; ++j) {
      m(static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(j)) =
          rows.scale(row) * rows.coordinate(row, j);
    }
  }
  return m;
}

/// Stores RQ as queries meet it where there are as many coordinates as dimensions. Its largest value becomes
/// 1, to be well within what floats hold.
inline ContextTransform whole_transform_of(const CoordinateBasis& basis) {
  const auto dim = static_cast<std::size_t>(basis.Q.cols());
  Eigen::MatrixXd product = basis.product();
  const double largest = product.cwiseAbs().maxCoeff();
  if (largest > 0.0) product /= largest;
  PrefixWriter rows(dim, kernels::PrefixBlocks::width_for(dim));
  std::vector<double> row(rows.blocks().width, 0.0);
  std::vector<std::int8_t> q(row.size());
  for (std::size_t i = 0; i < dim; ++i) {
    Eigen::Map<Eigen::RowVectorXd>(row.data(), product.cols()) = product.row(static_cast<Eigen::Index>(i));
    rows.put(i, 0.0F, row, q.data());
  }
  PrefixStore kept = std::move(rows).finish();
  const double norm = stored(kept, dim).norm() * kOutward;
  return {std::move(kept), norm};
}

/// Stores Q and R as queries meet them, and measures what that has made of them: η and ‖R‖.
inline ContextTransform transform_of(const CoordinateBasis& basis) {
  const auto dim = static_cast<std::size_t>(basis.Q.cols());
  const auto width = static_cast<std::size_t>(basis.Q.rows());
  if (basis.is_identity()) return ContextTransform::identity(dim);
  if (width == dim) return whole_transform_of(basis);
  const std::size_t room = ContextTransform::room_for(width);
  StoredArray<Float16> Q_stored = halves(filled_up(basis.Q.transpose(), room));
  StoredArray<float> R_stored = StoredArray<float>::own(filled_up(basis.R.transpose(), room));
  const Eigen::MatrixXd Q = stored(Q_stored, room, width);
  const Eigen::MatrixXd excess = transposed_times(Q, Q) - Eigen::MatrixXd::Identity(Q.cols(), Q.cols());
  const double unorthogonality = symmetric_eigenvalues(excess).cwiseAbs().maxCoeff() * kOutward + 1e-12;
  const double norm = stored(R_stored, room, width).norm() * kOutward;
  return {dim, width, std::move(Q_stored), std::move(R_stored), unorthogonality, norm};
}

/// (RQ)ᵀ [d×width], of what is stored.
inline Eigen::MatrixXd basis_of(const ContextTransform& transform) {
  if (transform.is_identity()) {
    const auto dim = static_cast<Eigen::Index>(transform.dim());
    return Eigen::MatrixXd::Identity(dim, dim);
  }
  if (transform.in_bytes()) return stored(transform.whole(), transform.dim()).transpose();
  return times(stored(transform.Q(), transform.room(), transform.width()),
               stored(transform.R(), transform.room(), transform.width()));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
