// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/learning/outside_sample.hpp"
#include "topksoftmax/numeric/linear_algebra.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Ridge regression of the mass outside: one linear model for all contexts, and for each group what is left
/// of that. Coordinates have mean 0 and variance 1, so that a ridge counts as so many contexts which say that
/// a coefficient is 0.
class OutsideRegression {
 public:
  using Model = Eigen::VectorXd;  ///< [d + 1]: of the coordinates, then the offset
  using Which = std::span<const std::size_t>;

  /// `of` must outlive it, and have contexts.
  OutsideRegression(const OutsideSample& of, Which which, const Executor& executor)
      : sample_(of), executor_(executor) {
    const auto dim = static_cast<Eigen::Index>(of.dim());
    const auto n = static_cast<double>(which.size());
    mean_ = Eigen::VectorXd::Zero(dim);
    Eigen::VectorXd squares = Eigen::VectorXd::Zero(dim);
    for (const std::size_t i : which) mean_ += row(i);
    mean_ /= n;
    for (const std::size_t i : which) squares += (row(i) - mean_).cwiseAbs2();
    const auto inverse = [n](double sum) { return sum > 0.0 ? std::sqrt(n / sum) : 0.0; };
    inverse_deviation_ = squares.unaryExpr(inverse);
  }

  /// The model of all these contexts, for each of the ridges. Cost: n·d² multiply-adds, and d³/3 a ridge.
  std::vector<Model> fit(Which which, std::span<const double> ridges) const {
    const auto size = static_cast<Eigen::Index>(sample_.dim()) + 1;
    Eigen::MatrixXd gram = Eigen::MatrixXd::Zero(size, size);
    Eigen::VectorXd products = Eigen::VectorXd::Zero(size);
    double mean = 0.0;
    for (const std::size_t i : which) mean += sample_.outside[i];
    mean /= static_cast<double>(which.size());
    constexpr std::size_t columns = 64;
    for_each_part(executor_, sample_.dim() + 1, columns, [&](std::size_t first, std::size_t count) {
      const auto at = static_cast<Eigen::Index>(first);
      const auto wide = static_cast<Eigen::Index>(count);
      for (std::size_t begin = 0; begin < which.size(); begin += kTogether) {
        const Which some = which.subspan(begin, std::min(kTogether, which.size() - begin));
        const Eigen::MatrixXd X = coordinates(some);
        gram.middleCols(at, wide) += transposed_times(X, X.middleCols(at, wide));
        const Eigen::VectorXd wanted = outside(some).array() - mean;
        products.segment(at, wide) += transposed_times(X.middleCols(at, wide), wanted);
      }
    });
    std::vector<Model> models;
    for (const double ridge : ridges) {
      Eigen::MatrixXd shrunk = gram;
      shrunk.diagonal().array() += ridge;
      Model model = solution(shrunk, products);
      model[size - 1] += mean;
      models.push_back(std::move(model));
    }
    return models;
  }

  /// What is to be added to `common` for the contexts of one group, for each of the ridges. Cost: n·m·d
  /// multiply-adds, m the lesser of n and d, and m³/3 a ridge.
  std::vector<Model> fit_group(Which which, const Model& common, std::span<const double> ridges) const {
    const Eigen::MatrixXd X = coordinates(which);
    const Eigen::VectorXd left = outside(which) - times(X, common);
    const bool few = X.rows() < X.cols();
    const Eigen::MatrixXd gram = few ? times_transposed(X, X) : transposed_times(X, X);
    std::vector<Model> models;
    for (const double ridge : ridges) {
      Eigen::MatrixXd shrunk = gram;
      shrunk.diagonal().array() += ridge;
      if (few) {
        models.emplace_back(transposed_times(X, solution(shrunk, left)));
      } else {
        models.emplace_back(solution(shrunk, transposed_times(X, left)));
      }
    }
    return models;
  }

  /// The mass outside of a context.
  double predict(const Model& model, std::size_t i) const {
    const Eigen::Index dim = mean_.size();
    return model[dim] + ((row(i) - mean_).cwiseProduct(inverse_deviation_)).dot(model.head(dim));
  }

  /// The same model for contexts as they are.
  void unscale(const Model& model, Eigen::Ref<Eigen::RowVectorXf> weights, float& offset) const {
    const Eigen::Index dim = mean_.size();
    const Eigen::VectorXd scaled = model.head(dim).cwiseProduct(inverse_deviation_);
    weights = scaled.transpose().cast<float>();
    offset = static_cast<float>(model[dim] - scaled.dot(mean_));
  }

 private:
  static constexpr std::size_t kTogether = 512;

  /// A⁻¹b of a positive definite A.
  static Eigen::VectorXd solution(const Eigen::MatrixXd& A, const Eigen::VectorXd& b) {
    return A.llt().solve(b);
  }

  Eigen::VectorXd row(std::size_t i) const {
    return Eigen::Map<const Eigen::VectorXf>(sample_.context(i), static_cast<Eigen::Index>(sample_.dim()))
        .cast<double>();
  }

  /// [n×(d + 1)], 1 in the last column.
  Eigen::MatrixXd coordinates(Which which) const {
    Eigen::MatrixXd X(static_cast<Eigen::Index>(which.size()), mean_.size() + 1);
    for (std::size_t i = 0; i < which.size(); ++i) {
      X.row(static_cast<Eigen::Index>(i)).head(mean_.size()) =
          (row(which[i]) - mean_).cwiseProduct(inverse_deviation_).transpose();
    }
    X.rightCols(1).setOnes();
    return X;
  }

  Eigen::VectorXd outside(Which which) const {
    Eigen::VectorXd values(static_cast<Eigen::Index>(which.size()));
    for (std::size_t i = 0; i < which.size(); ++i)
      values[static_cast<Eigen::Index>(i)] = sample_.outside[which[i]];
    return values;
  }

  const OutsideSample& sample_;
  const Executor& executor_;
  Eigen::VectorXd mean_;
  Eigen::VectorXd inverse_deviation_;  ///< 0 where all contexts are equal
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
