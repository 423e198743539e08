// SPDX-License-Identifier: Apache-2.0
#include "screeners/coordinate_chooser.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>

#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// What eigenvalues of zero become at the least: its roots, either way, are floats.
constexpr double kLeastLift = 1e-30;

/// Square root of a positive semidefinite matrix, or of its inverse; small eigenvalues are lifted so that it
/// exists.
MatrixXd power(const MatrixXd& S, double exponent) {
  const Eigen::SelfAdjointEigenSolver<MatrixXd> eigen(S);
  const double lift = 1e-3 * eigen.eigenvalues().sum() / static_cast<double>(S.rows());
  VectorXd values = eigen.eigenvalues().cwiseMax(0.0);
  values.array() += std::max(lift, kLeastLift);
  return eigen.eigenvectors() * values.array().pow(exponent).matrix().asDiagonal() *
         eigen.eigenvectors().transpose();
}

MatrixXd normalized(MatrixXd S) {
  const double trace = S.trace();
  if (trace > 0.0) S /= trace;
  return S;
}

/// R for which E[h'h'ᵀ] and E[w'w'ᵀ] are equal and diagonal, given both moments within Q's rows.
MatrixXd balance(const MatrixXd& contexts, const MatrixXd& rows) {
  const MatrixXd root = power(contexts, 0.5);
  const Eigen::SelfAdjointEigenSolver<MatrixXd> joint(root * rows * root);
  const MatrixXd U = joint.eigenvectors().rowwise().reverse();
  const VectorXd lambda =
      joint.eigenvalues().reverse().cwiseMax(1e-9 * std::max(joint.eigenvalues().maxCoeff(), 1e-30));
  return lambda.array().pow(0.25).matrix().asDiagonal() * U.transpose() * power(contexts, -0.5);
}

}  // namespace

CoordinateChooser::CoordinateChooser(const MatrixXd& W, const RowMajorMatrix& contexts, BoundCoordinates kind)
    : kind_(kind), contexts_(MatrixXd::Identity(W.cols(), W.cols())) {
  if (contexts.rows() > 0) {
    const float largest = contexts.cwiseAbs().maxCoeff();  // whose square may be no float
    const RowMajorMatrix H = contexts / (largest > 0.0F ? largest : 1.0F);
    const Eigen::MatrixXf moment = H.transpose() * H;
    contexts_ = moment.cast<double>();
  } else if (kind == BoundCoordinates::contexts) {
    throw Error("certified: the contexts' own coordinates are wanted, but there are no contexts");
  }
  contexts_ = normalized(contexts_);
  rows_ = normalized(W.transpose() * W);
  const MatrixXd spread = kind == BoundCoordinates::contexts ? contexts_
                          : kind == BoundCoordinates::rows   ? rows_
                                                             : MatrixXd(contexts_ + rows_);
  directions_ = Eigen::SelfAdjointEigenSolver<MatrixXd>(spread).eigenvectors().rowwise().reverse();
}

CoordinateBasis CoordinateChooser::choose(std::size_t width) const {
  const MatrixXd Q = directions_.leftCols(static_cast<Index>(width));
  const MatrixXd rows = Q.transpose() * rows_ * Q;
  switch (kind_) {
    case BoundCoordinates::contexts:
      return {Q.transpose(), MatrixXd::Identity(Q.cols(), Q.cols())};
    case BoundCoordinates::rows:
      return {Q.transpose(), power(rows, 0.5)};
    case BoundCoordinates::balanced:
      break;
  }
  return {Q.transpose(), balance(Q.transpose() * contexts_ * Q, rows)};
}

VectorXd CoordinateChooser::row_shares() const {
  return (directions_.transpose() * rows_ * directions_).diagonal();
}

}  // namespace topksoftmax
