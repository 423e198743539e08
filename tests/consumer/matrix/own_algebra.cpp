// SPDX-License-Identifier: Apache-2.0
#include "own_algebra.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

void expect_small(double error) {
  if (!(error < 1e-6)) throw std::runtime_error("Eigen's own results are wrong");
}

}  // namespace

void do_own_algebra(int size) {
  std::vector<Eigen::MatrixXd> kept;
  for (int rows = 1; rows <= size; rows += 3) {
    Eigen::MatrixXd grown = Eigen::MatrixXd::Identity(rows, rows);
    grown.conservativeResize(rows + 2, rows + 1);
    grown.rightCols(1).setOnes();
    grown.bottomRows(2).setConstant(0.25);
    kept.push_back(std::move(grown));
  }
  const Eigen::MatrixXd& tall = kept.back();
  const Eigen::MatrixXd square = tall.transpose() * tall;
  const Eigen::VectorXd right = Eigen::VectorXd::LinSpaced(square.rows(), 1.0, 2.0);
  expect_small((square * square.ldlt().solve(right) - right).norm());

  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(square);
  const Eigen::MatrixXd& vectors = eigen.eigenvectors();
  expect_small((vectors * eigen.eigenvalues().asDiagonal() * vectors.transpose() - square).norm());

  Eigen::MatrixXf small = tall.cast<float>();
  small.resize(3, 5);
  small.setRandom();
  Eigen::VectorXf values = small.rowwise().norm();
  values.conservativeResize(7);
  expect_small(static_cast<double>((values.head(3) - small.rowwise().norm()).norm()));
}
