// SPDX-License-Identifier: Apache-2.0
#include "screeners/row_order.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace topksoftmax {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

Index widest_coordinate(const MatrixXd& points, std::span<const TokenId> rows) {
  VectorXd sum = VectorXd::Zero(points.cols());
  VectorXd squares = VectorXd::Zero(points.cols());
  for (const TokenId row : rows) {
    sum += points.row(row).transpose();
    squares += points.row(row).transpose().cwiseAbs2();
  }
  Index widest = 0;
  (squares - sum.cwiseAbs2() / static_cast<double>(rows.size())).maxCoeff(&widest);
  return widest;
}

void halve(const MatrixXd& points, std::size_t group, std::span<TokenId> rows) {
  if (rows.size() <= group) return std::sort(rows.begin(), rows.end());
  const Index widest = widest_coordinate(points, rows);
  const std::size_t groups = (rows.size() + group - 1) / group;
  const std::size_t half = groups / 2 * group;
  std::nth_element(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(half), rows.end(),
                   [&points, widest](TokenId a, TokenId b) {
                     const double x = points(a, widest);
                     const double y = points(b, widest);
                     return x != y ? x < y : a < b;
                   });
  halve(points, group, rows.first(half));
  halve(points, group, rows.subspan(half));
}

}  // namespace

std::vector<TokenId> similar_rows_together(const MatrixXd& points, std::size_t group) {
  std::vector<TokenId> rows(static_cast<std::size_t>(points.rows()));
  std::iota(rows.begin(), rows.end(), TokenId{0});
  halve(points, group, rows);
  return rows;
}

}  // namespace topksoftmax
