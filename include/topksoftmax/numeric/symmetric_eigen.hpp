// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"

// Eigenvectors on all cores. Eigen's own solver takes one, and three quarters of its time go into rotations
// of whole columns, which it reads from memory again and again: here a few rows at a time meet many
// rotations.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A = V·diag(λ)·Vᵀ.
struct SymmetricEigen {
  Eigen::VectorXd values;   ///< λ [n], the largest first
  Eigen::MatrixXd vectors;  ///< V [n×n], a column each
};

/// Of two neighbouring columns: (c·x − s·y, s·x + c·y).
struct Rotation {
  double c;
  double s;
};

/// Rotations of columns first and first + 1, of first + 1 and first + 2, and so on.
struct RotationSweep {
  std::size_t first;
  std::size_t count;
};

/// Sweeps that follow each other, and their rotations.
struct RotationSweeps {
  std::vector<RotationSweep> sweeps;
  std::vector<Rotation> rotations;

  void clear() {
    sweeps.clear();
    rotations.clear();
  }
};

/// A symmetric tridiagonal matrix on its way to its eigenvalues, by implicit QR steps with Wilkinson's shift
/// (Golub and Van Loan, Matrix Computations, §8.3).
class TridiagonalSteps {
 public:
  /// Of a diagonal [n] and what lies beside it [n − 1], of magnitudes up to n or so.
  TridiagonalSteps(Eigen::VectorXd diagonal, Eigen::VectorXd beside)
      : d_(std::move(diagonal)), e_(std::move(beside)), last_(static_cast<std::size_t>(d_.size()) - 1) {}

  /// Does one more step, whose rotations are added to those of `done`; false if the matrix is diagonal.
  /// Throws Error where so many steps cannot be needed.
  bool step(RotationSweeps& done) {
    while (last_ > 0 && is_zero(last_ - 1)) --last_;
    if (last_ == 0) return false;
    if (++steps_ > kMostSteps * static_cast<std::size_t>(d_.size())) {
      throw Error("eigenvalues: they do not converge");
    }
    std::size_t first = last_ - 1;
    while (first > 0 && !is_zero(first - 1)) --first;
    chase(first, done);
    return true;
  }

  /// The eigenvalues, once it is diagonal.
  const Eigen::VectorXd& diagonal() const { return d_; }

 private:
  /// Steps for each eigenvalue: fewer than two are usual.
  static constexpr std::size_t kMostSteps = 50;

  static Eigen::Index at(std::size_t i) { return static_cast<Eigen::Index>(i); }

  /// Whether e_i is nothing beside its neighbours, and 0 then.
  bool is_zero(std::size_t i) {
    constexpr double kNothing = std::numeric_limits<double>::epsilon();
    double& e = e_[at(i)];
    const double neighbours = std::abs(d_[at(i)]) + std::abs(d_[at(i + 1)]);
    if (std::abs(e) > kNothing * neighbours && std::abs(e) > std::numeric_limits<double>::min()) return false;
    e = 0.0;
    return true;
  }

  /// The eigenvalue of the last two rows that is nearer to the last one.
  double shift() const {
    const double half = 0.5 * (d_[at(last_ - 1)] - d_[at(last_)]);
    const double e = e_[at(last_ - 1)];
    const double root = std::hypot(half, e);
    return d_[at(last_)] - e * (e / (half + std::copysign(root, half)));
  }

  /// Rotates the shifted first column, and what that leaves beside the diagonals down and out.
  void chase(std::size_t first, RotationSweeps& done) {
    done.sweeps.push_back({first, last_ - first});
    double x = d_[at(first)] - shift();
    double bulge = e_[at(first)];
    for (std::size_t k = first; k < last_; ++k) {
      const double length = std::hypot(x, bulge);
      const Rotation turn = length > 0.0 ? Rotation{x / length, -bulge / length} : Rotation{1.0, 0.0};
      done.rotations.push_back(turn);
      const auto [c, s] = turn;
      if (k > first) e_[at(k - 1)] = length;
      double& e = e_[at(k)];
      const double difference = d_[at(k)] - d_[at(k + 1)];
      const double moved = s * (s * difference + 2.0 * c * e);
      d_[at(k)] -= moved;
      d_[at(k + 1)] += moved;
      e = c * s * difference + (c - s) * (c + s) * e;
      if (k + 1 < last_) {
        x = e;
        bulge = -s * e_[at(k + 1)];
        e_[at(k + 1)] *= c;
      }
    }
  }

  Eigen::VectorXd d_;
  Eigen::VectorXd e_;
  std::size_t last_;  ///< behind it all is diagonal
  std::size_t steps_ = 0;
};

/// Rotates columns of some rows.
template <class Rows>
void rotate_columns(const RotationSweeps& done, Rows& rows) {
  const Rotation* next = done.rotations.data();
  for (const RotationSweep& sweep : done.sweeps) {
    auto k = static_cast<Eigen::Index>(sweep.first);
    Eigen::Array<double, Rows::RowsAtCompileTime, 1> x = rows.col(k);
    for (std::size_t i = 0; i < sweep.count; ++i, ++k, ++next) {
      const Eigen::Array<double, Rows::RowsAtCompileTime, 1> y = rows.col(k + 1);
      rows.col(k) = next->c * x - next->s * y;
      x = next->s * x + next->c * y;
    }
    rows.col(k) = x;
  }
}

/// The same of V, a few rows at a time: these stay in the second cache.
inline void rotate_columns(const RotationSweeps& done, Eigen::MatrixXd& V, const Executor& executor) {
  constexpr std::size_t kAtOnce = 16;
  using Rows = Eigen::Array<double, kAtOnce, Eigen::Dynamic>;
  for_each_part(executor, static_cast<std::size_t>(V.rows()), kAtOnce,
                [&](std::size_t row, std::size_t some) {
                  const auto first = static_cast<Eigen::Index>(row);
                  const auto count = static_cast<Eigen::Index>(some);
                  Rows rows = Rows::Zero(kAtOnce, V.cols());
                  rows.topRows(count) = V.middleRows(first, count).array();
                  rotate_columns(done, rows);
                  V.middleRows(first, count) = rows.topRows(count).matrix();
                });
}

/// What A is divided by, for TridiagonalSteps.
inline double scale_of(const Eigen::MatrixXd& A) {
  const double largest = A.cwiseAbs().maxCoeff();
  return largest > 0.0 ? largest : 1.0;
}

/// The eigenvalues alone [n], in no order, of what symmetric_eigen() takes, and with its errors.
/// Cost: 4/3·n³ multiply-adds.
inline Eigen::VectorXd symmetric_eigenvalues(const Eigen::MatrixXd& A) {
  const double scale = scale_of(A);
  const Eigen::Tridiagonalization<Eigen::MatrixXd> tridiagonal(A / scale);
  TridiagonalSteps steps(tridiagonal.diagonal(), tridiagonal.subDiagonal());
  for (RotationSweeps done; steps.step(done);) done.clear();
  return scale * steps.diagonal();
}

/// The eigenvalues and eigenvectors of A [n×n], symmetric and finite, n ≥ 1. Both are right but for a few
/// ε·‖A‖. The same bits for every executor.
///
/// Cost, in multiply-adds: 4/3·n³ on one thread, and about 3.5·n³ on all; memory: two matrices like A at a
/// time, what is returned included, and 8 MB of rotations. Throws Error where the eigenvalues do not
/// converge.
inline SymmetricEigen symmetric_eigen(const Eigen::MatrixXd& A, const Executor& executor) {
  constexpr std::size_t kRotationsAtOnce = std::size_t{1} << 19;
  const double scale = scale_of(A);
  Eigen::MatrixXd V;
  TridiagonalSteps steps = [&] {
    const Eigen::Tridiagonalization<Eigen::MatrixXd> tridiagonal(A / scale);
    V = tridiagonal.matrixQ();
    return TridiagonalSteps(tridiagonal.diagonal(), tridiagonal.subDiagonal());
  }();
  RotationSweeps done;
  for (bool more = true; more;) {
    more = steps.step(done);
    if (more && done.rotations.size() < kRotationsAtOnce) continue;
    rotate_columns(done, V, executor);
    done.clear();
  }
  std::vector<Eigen::Index> order(static_cast<std::size_t>(A.rows()));
  std::iota(order.rbegin(), order.rend(), Eigen::Index{0});
  const Eigen::VectorXd& values = steps.diagonal();
  std::stable_sort(order.begin(), order.end(),
                   [&values](Eigen::Index a, Eigen::Index b) { return values[a] > values[b]; });
  return {scale * values(order), V(Eigen::all, order)};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
