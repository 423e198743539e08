// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/half.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/workspace.hpp"

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
/// there are as many coordinates as dimensions nothing lies outside of them: the product RQ alone is kept, in
/// int8, and need not be orthogonal. It meets contexts that are rounded to 15 bits, in exact integers. Where
/// RQ = I nothing is kept.
class TOPKSOFTMAX_EXPORT ContextTransform {
 public:
  ContextTransform() = default;
  /// RQ = I [d×d].
  static ContextTransform identity(std::size_t dim) {
    ContextTransform transform;
    transform.dim_ = transform.width_ = dim;
    return transform;
  }

  /// Of RQ [d×d], whose norm is given, as rows of int8 alone.
  ContextTransform(PrefixStore whole, double norm)
      : dim_(whole.blocks().rows), width_(dim_), whole_(std::move(whole)), transform_norm_(norm) {}

  /// Of what is stored of Q and R, of η and the norm of R. Files of earlier versions have one matrix in
  /// float16 for both: Q is RQ then, R is empty, and the norm is that of RQ.
  ContextTransform(std::size_t dim, std::size_t width, StoredArray<Float16> Q, StoredArray<float> R,
                   double unorthogonality, double norm)
      : dim_(dim),
        width_(width),
        Q_(std::move(Q)),
        R_(std::move(R)),
        unorthogonality_(unorthogonality),
        transform_norm_(norm) {}

  /// Reads what save() has written, of so many coordinates unless it is a whole transform; norms [2] are η
  /// and norm().
  ContextTransform(const IndexReader& in, std::size_t width, const double* norms);
  /// The tensors "Q" F16 [d, room] and, if there is one, "R" F32 [width, room], both transposed, with zeros
  /// behind `width` columns. A whole transform in int8 is the tensor "RQ", as PrefixStore saves it, and the
  /// identity is an option.
  void save(IndexWriter& out) const;

  std::size_t dim() const { return dim_; }
  std::size_t width() const { return width_; }
  /// The width rounded up to what is computed at a time.
  std::size_t room() const { return room_for(width_); }
  static std::size_t room_for(std::size_t width) {
    return (width + kernels::kSlack - 1) / kernels::kSlack * kernels::kSlack;
  }
  /// Values that c takes, or what a whole transform needs in its place.
  std::size_t projected_room() const { return in_bytes() ? 2 * room() : room(); }
  std::size_t bytes() const {
    return Q_.size() * sizeof(Float16) + R_.size() * sizeof(float) + whole_.blocks().bytes();
  }
  double unorthogonality() const { return unorthogonality_; }
  double norm() const { return transform_norm_; }

  const StoredArray<Float16>& Q() const { return Q_; }  ///< Qᵀ [d×room], or nothing
  const StoredArray<float>& R() const { return R_; }    ///< Rᵀ [width×room], or nothing
  const PrefixStore& whole() const { return whole_; }   ///< RQ [d×d], or nothing
  /// Whether coordinates are the contexts' own.
  bool is_identity() const { return Q_.size() == 0 && !in_bytes(); }
  /// Whether there are as many coordinates as dimensions, and Q and R are one.
  bool is_whole() const { return R_.size() == 0; }
  /// Whether they are one in int8.
  bool in_bytes() const { return whole_.blocks().rows > 0; }

  /// How long a context and what becomes of it are.
  struct Lengths {
    LengthBounds context;      ///< ‖h‖
    LengthBounds projected;    ///< ‖c‖, 0 where there is none
    LengthBounds transformed;  ///< ‖h'‖
    double lost = 0.0;         ///< what h loses at the most before it is transformed
  };

  /// A context h [d] and what becomes of it: c = Qh [projected_room()] and h' = Rc [room()], both with zeros
  /// behind `width`. Of a whole transform there is no c: what it is given as is worked in.
  struct Application {
    const float* h;
    float* projected;
    float* transformed;
    Lengths lengths = {};
  };

  /// Transforms up to kernels::kPrefixBatch contexts, which meet RQ in int8 together. The workspace's crew
  /// shares what is in int8 of a single one.
  void apply(std::span<Application> batch, const Workspace& workspace) const;

  /// The same for one context, which is given as {h, projected, transformed}: tells how long it is, and what
  /// becomes of it.
  Lengths apply(Application one, const Workspace& workspace) const {
    apply({&one, 1}, workspace);
    return one.lengths;
  }

  /// ‖h⊥‖ at the most.
  double outside(const Lengths& lengths) const;

  /// The errors of h' and those of the exact kernel's dot product at the most, per unit of a row's length.
  double error(const Lengths& lengths) const;

 private:
  void apply_bytes(std::span<Application> batch, const Workspace& workspace) const;
  double projection_error(const Lengths& lengths) const;

  std::size_t dim_ = 0;
  std::size_t width_ = 0;
  StoredArray<Float16> Q_;        ///< Qᵀ [d×room]
  StoredArray<float> R_;          ///< Rᵀ [width×room]
  PrefixStore whole_;             ///< RQ [d×d]
  double unorthogonality_ = 0.0;  ///< η ≥ ‖QQᵀ − I‖
  double transform_norm_ = 0.0;   ///< ‖R‖_F, or ‖RQ‖_F of a whole transform
};

/// ‖x‖ of x [count].
TOPKSOFTMAX_EXPORT LengthBounds length_of(const float* x, std::size_t count);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/certified/transform-inl.hpp"
#endif
