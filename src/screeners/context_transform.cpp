// SPDX-License-Identifier: Apache-2.0
#include "screeners/context_transform.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;

/// What the square of a float may lose where it is smaller than floats can be.
constexpr double kLostSquare = 0x1p-148;

/// A matrix in rows, each filled up with zeros to `room` columns.
template <class T>
StoredArray<T> store(const MatrixXd& m, std::size_t room) {
  using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Rows rows = Rows::Constant(m.rows(), static_cast<Index>(room), T(0.0F));
  rows.leftCols(m.cols()) = m.cast<float>().cast<T>();
  return StoredArray<T>::own(std::move(rows));
}

/// The first `width` columns of what store() has stored.
template <class T>
MatrixXd stored(const StoredArray<T>& values, std::size_t room, std::size_t width) {
  using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Rows> rows(values.data(), static_cast<Index>(values.size() / room),
                                    static_cast<Index>(room));
  return rows.leftCols(static_cast<Index>(width)).template cast<double>();
}

template <class T>
kernels::Rows as_rows(const StoredArray<T>& values, std::size_t room, WeightType type) {
  kernels::Rows rows;
  rows.data = values.data();
  rows.count = values.size() / room;
  rows.dim = rows.stride = room;
  rows.type = type;
  return rows;
}

}  // namespace

LengthBounds length_of(const float* x, std::size_t count) {
  const auto square = static_cast<double>(kernels::active().squared_length(x, count));
  const double lost = kLostSquare * static_cast<double>(count);
  const double share = roundings(count + 3);
  return {std::sqrt(std::max(square * (1.0 - share) - lost, 0.0)), std::sqrt(square * (1.0 + share) + lost)};
}

ContextTransform::ContextTransform(const CoordinateBasis& basis)
    : dim_(static_cast<std::size_t>(basis.Q.cols())),
      width_(static_cast<std::size_t>(basis.Q.rows())),
      Q_(store<Eigen::half>(basis.Q.transpose(), room())),
      R_(store<float>(basis.R.transpose(), room())) {
  const MatrixXd Q = stored(Q_, room(), width_);
  const MatrixXd excess = Q.transpose() * Q - MatrixXd::Identity(Q.cols(), Q.cols());
  const Eigen::SelfAdjointEigenSolver<MatrixXd> eigen(excess, Eigen::EigenvaluesOnly);
  unorthogonality_ = eigen.eigenvalues().cwiseAbs().maxCoeff() * kOutward + 1e-12;
  transform_norm_ = stored(R_, room(), width_).norm() * kOutward;
}

ContextTransform::ContextTransform(const IndexReader& in, std::size_t width, const double* norms)
    : dim_(in.dim()),
      width_(width),
      Q_(in.array<Eigen::half>("Q", {in.dim(), room()})),
      R_(in.floats("R", {width, room()})),
      unorthogonality_(norms[0]),
      transform_norm_(norms[1]) {
  if (std::any_of(Q_.begin(), Q_.end(),
                  [](Eigen::half x) { return !std::isfinite(static_cast<float>(x)); })) {
    throw in.damaged("Q", "has a value that is not finite");
  }
}

void ContextTransform::save(IndexWriter& out) const {
  out.array("Q", {dim(), room()}, Q_);
  out.array("R", {width(), room()}, R_);
}

MatrixXd ContextTransform::basis() const {
  return stored(Q_, room(), width_) * stored(R_, room(), width_);
}

void ContextTransform::apply(const float* h, float* projected, float* transformed) const {
  const kernels::Implementation& kernel = kernels::active();
  kernel.combine_rows(as_rows(Q_, room(), WeightType::float16), h, projected);
  kernel.combine_rows(as_rows(R_, room(), WeightType::float32), projected, transformed);
}

ContextTransform::Lengths ContextTransform::lengths(const float* h, const float* projected,
                                                    const float* transformed) const {
  return {length_of(h, dim()), length_of(projected, width()), length_of(transformed, width())};
}

double ContextTransform::projection_error(const Lengths& lengths) const {
  // `width` dot products of d terms with rows of length about 1.
  const double root_width = std::sqrt(static_cast<double>(width()));
  return roundings(dim() + 2) * root_width * (1.0 + unorthogonality_) * lengths.context.high;
}

double ContextTransform::outside(const Lengths& lengths) const {
  const double inside = std::max(lengths.projected.low - projection_error(lengths), 0.0);
  const double square =
      lengths.context.high * lengths.context.high - inside * inside / (1.0 + unorthogonality_);
  return std::sqrt(std::max(square, 0.0)) * kOutward;
}

double ContextTransform::error(const Lengths& lengths) const {
  const double transform_error =
      transform_norm_ * (projection_error(lengths) + roundings(width() + 2) * lengths.projected.high);
  return roundings(dim() + 3) * lengths.context.high + transform_error +
         roundings(width() + 6) * lengths.transformed.high;
}

}  // namespace topksoftmax
