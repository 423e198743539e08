// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/half.hpp"
#include "topksoftmax/rows/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A matrix [n×room] as the kernels take it.
template <class T>
kernels::Rows as_rows(const StoredArray<T>& values, std::size_t room, WeightType type) {
  kernels::Rows rows;
  rows.data = values.data();
  rows.count = values.size() / room;
  rows.dim = rows.stride = room;
  rows.type = type;
  return rows;
}

/// A vector's length at the least and at the most.
struct LengthBounds {
  double low = 0.0;
  double high = 0.0;
};

/// From contexts and rows to the coordinates that they are bounded in: Q and R of CertifiedScreener. Where
/// there are as many coordinates as dimensions nothing lies outside of them: the product RQ alone is kept, as
/// Q without an R, and need not be orthogonal.
class TOPKSOFTMAX_EXPORT ContextTransform {
 public:
  ContextTransform() = default;
  /// Of what is stored of Q and R, or of their product and none, of η and the norm of the last one.
  ContextTransform(std::size_t dim, std::size_t width, StoredArray<Float16> Q, StoredArray<float> R,
                   double unorthogonality, double norm)
      : dim_(dim),
        width_(width),
        Q_(std::move(Q)),
        R_(std::move(R)),
        unorthogonality_(unorthogonality),
        transform_norm_(norm) {}

  /// Reads what save() has written; norms [2] are η and norm().
  ContextTransform(const IndexReader& in, std::size_t width, const double* norms);
  /// The tensors "Q" F16 [d, room] and, if there is one, "R" F32 [width, room], both transposed, with zeros
  /// behind `width` columns.
  void save(IndexWriter& out) const;

  std::size_t dim() const { return dim_; }
  std::size_t width() const { return width_; }
  /// The width rounded up to what is computed at a time.
  std::size_t room() const { return room_for(width_); }
  static std::size_t room_for(std::size_t width) {
    return (width + kernels::kSlack - 1) / kernels::kSlack * kernels::kSlack;
  }
  std::size_t bytes() const { return Q_.size() * sizeof(Float16) + R_.size() * sizeof(float); }
  double unorthogonality() const { return unorthogonality_; }
  double norm() const { return transform_norm_; }

  const StoredArray<Float16>& Q() const { return Q_; }  ///< Qᵀ [d×room]
  const StoredArray<float>& R() const { return R_; }    ///< Rᵀ [width×room], or nothing
  /// Whether Q is the whole transform, of as many coordinates as dimensions.
  bool is_whole() const { return R_.size() == 0; }

  /// c = Qh and h' = Rc, both [room()] with zeros behind `width`. There is no c where Q is the whole
  /// transform: what it is given as is left.
  void apply(const float* h, float* projected, float* transformed) const;

  /// How long a context and what becomes of it are.
  struct Lengths {
    LengthBounds context;      ///< ‖h‖
    LengthBounds projected;    ///< ‖c‖, 0 where there is none
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
  StoredArray<Float16> Q_;        ///< Qᵀ [d×room]
  StoredArray<float> R_;          ///< Rᵀ [width×room]
  double unorthogonality_ = 0.0;  ///< η ≥ ‖QQᵀ − I‖
  double transform_norm_ = 0.0;   ///< ‖R‖_F, or ‖Q‖_F of a whole transform
};

/// ‖x‖ of x [count].
TOPKSOFTMAX_EXPORT LengthBounds length_of(const float* x, std::size_t count);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/certified/transform-inl.hpp"
#endif
