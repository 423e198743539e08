// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A vector's length at the least and at the most.
struct LengthBounds {
  double low = 0.0;
  double high = 0.0;
};

/// From contexts and rows to the coordinates that they are bounded in: Q and R of CertifiedScreener.
class ContextTransform {
 public:
  ContextTransform() = default;
  /// Of what is stored of Q and R, and of their norms.
  ContextTransform(std::size_t dim, std::size_t width, StoredArray<Eigen::half> Q, StoredArray<float> R,
                   double unorthogonality, double norm)
      : dim_(dim),
        width_(width),
        Q_(std::move(Q)),
        R_(std::move(R)),
        unorthogonality_(unorthogonality),
        transform_norm_(norm) {}

  /// Reads what save() has written; norms [2] are η and ‖R‖.
  ContextTransform(const IndexReader& in, std::size_t width, const double* norms);
  /// The tensors "Q" F16 [d, room] and "R" F32 [width, room], both transposed, with zeros behind `width`
  /// columns.
  void save(IndexWriter& out) const;

  std::size_t dim() const { return dim_; }
  std::size_t width() const { return width_; }
  /// The width rounded up to what is computed at a time.
  std::size_t room() const { return room_for(width_); }
  static std::size_t room_for(std::size_t width) {
    return (width + kernels::kSlack - 1) / kernels::kSlack * kernels::kSlack;
  }
  std::size_t bytes() const { return Q_.size() * sizeof(Eigen::half) + R_.size() * sizeof(float); }
  double unorthogonality() const { return unorthogonality_; }
  double norm() const { return transform_norm_; }

  const StoredArray<Eigen::half>& Q() const { return Q_; }  ///< Qᵀ [d×room]
  const StoredArray<float>& R() const { return R_; }        ///< Rᵀ [width×room]

  /// c = Qh and h' = Rc, both [room()] with zeros behind `width`.
  void apply(const float* h, float* projected, float* transformed) const;

  /// How long a context and what becomes of it are.
  struct Lengths {
    LengthBounds context;      ///< ‖h‖
    LengthBounds projected;    ///< ‖c‖
    LengthBounds transformed;  ///< ‖h'‖
  };
  Lengths lengths(const float* h, const float* projected, const float* transformed) const;

  /// ‖h⊥‖ at the most.
  double outside(const Lengths& lengths) const;

  /// The errors of h' and those of the exact kernel's dot product and of products of h' at the most, per unit
  /// of a row's length.
  double error(const Lengths& lengths) const;

 private:
  double projection_error(const Lengths& lengths) const;

  std::size_t dim_ = 0;
  std::size_t width_ = 0;
  StoredArray<Eigen::half> Q_;    ///< Qᵀ [d×room]
  StoredArray<float> R_;          ///< Rᵀ [width×room]
  double unorthogonality_ = 0.0;  ///< η ≥ ‖QQᵀ − I‖
  double transform_norm_ = 0.0;   ///< ‖R‖_F
};

/// What the square of a float may lose where it is smaller than floats can be.
inline constexpr double kLostSquare = 0x1p-148;

template <class T>
kernels::Rows as_rows(const StoredArray<T>& values, std::size_t room, WeightType type) {
  kernels::Rows rows;
  rows.data = values.data();
  rows.count = values.size() / room;
  rows.dim = rows.stride = room;
  rows.type = type;
  return rows;
}

inline LengthBounds length_of(const float* x, std::size_t count) {
  const auto square = static_cast<double>(kernels::squared_length(x, count));
  const double lost = kLostSquare * static_cast<double>(count);
  const double share = roundings(count + 3);
  return {std::sqrt(std::max(square * (1.0 - share) - lost, 0.0)), std::sqrt(square * (1.0 + share) + lost)};
}

inline ContextTransform::ContextTransform(const IndexReader& in, std::size_t width, const double* norms)
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

inline void ContextTransform::save(IndexWriter& out) const {
  out.array("Q", {dim(), room()}, Q_);
  out.array("R", {width(), room()}, R_);
}

inline void ContextTransform::apply(const float* h, float* projected, float* transformed) const {
  kernels::combine_rows(as_rows(Q_, room(), WeightType::float16), h, projected);
  kernels::combine_rows(as_rows(R_, room(), WeightType::float32), projected, transformed);
}

inline ContextTransform::Lengths ContextTransform::lengths(const float* h, const float* projected,
                                                           const float* transformed) const {
  return {length_of(h, dim()), length_of(projected, width()), length_of(transformed, width())};
}

inline double ContextTransform::projection_error(const Lengths& lengths) const {
  // `width` dot products of d terms with rows of length about 1.
  const double root_width = std::sqrt(static_cast<double>(width()));
  return roundings(dim() + 2) * root_width * (1.0 + unorthogonality_) * lengths.context.high;
}

inline double ContextTransform::outside(const Lengths& lengths) const {
  const double inside = std::max(lengths.projected.low - projection_error(lengths), 0.0);
  const double square =
      lengths.context.high * lengths.context.high - inside * inside / (1.0 + unorthogonality_);
  return std::sqrt(std::max(square, 0.0)) * kOutward;
}

inline double ContextTransform::error(const Lengths& lengths) const {
  const double transform_error =
      transform_norm_ * (projection_error(lengths) + roundings(width() + 2) * lengths.projected.high);
  return roundings(dim() + 3) * lengths.context.high + transform_error +
         roundings(width() + 6) * lengths.transformed.high;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
