// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/in_memory.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Throws Error for values that LogitTransform does not allow. Its text begins with `where`: "PATH: " of a
/// file.
TOPKSOFTMAX_EXPORT void check_transform(const LogitTransform& transform, std::string_view where = {});

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// The softmax layer that is being accelerated: W [V×d] row-major and b [V] (or none); logits are W·h + b, or
/// with a transform, its values at these.
///
/// A layer is validated once, when it is made: every weight, scale and bias is finite (of int8 rows, every
/// weight that a scale allows), V ≥ 1, d ≥ 1, and d whole blocks where weights are stored so, otherwise Error
/// names the row and column. Copies are handles that share the weights, so backends keep a layer by value:
/// what `own` was given lives as long as any copy, what `borrow` was given must outlive them all and stay
/// unchanged. Weights are used in the type that they are stored in; no float32 copy is made.
class TOPKSOFTMAX_EXPORT SoftmaxLayer {
 public:
  /// Views W [V×d] and b [V] without copying: a row-major float matrix or map (rows may be strided) and a
  /// contiguous vector, not expressions. Values of a row or of b that are not next to each other, such as a
  /// column of a row-major matrix, do not compile or, where only run time tells, are an Error: copy them.
  /// Cost: one read of W to validate it.
  template <class Matrix, class Vector>
  static SoftmaxLayer borrow(const Eigen::DenseBase<Matrix>& W, const Eigen::DenseBase<Vector>& b) {
    static_assert(RowsInMemory<Matrix>, "W must be a row-major float matrix in memory, each row contiguous");
    static_assert(VectorInMemory<Vector>, "b must be a contiguous float vector in memory");
    check_contiguous(W.derived(), "softmax layer: W");
    check_contiguous(b.derived(), "softmax layer: b");
    return borrow(describe(W.derived(), b.derived().data(), b.size()), b.size());
  }

  /// The same without a bias.
  template <class Matrix>
  static SoftmaxLayer borrow(const Eigen::DenseBase<Matrix>& W) {
    return borrow(W, Eigen::Map<const Eigen::VectorXf>(nullptr, 0));
  }

  /// A matrix or vector that is gone when the call is over cannot be viewed: own() takes it over.
  template <class Matrix, class Vector>
  requires TemporaryValues<Matrix> || TemporaryValues<Vector>
  static SoftmaxLayer borrow(Matrix&& W, Vector&& b) = delete;
  template <TemporaryValues Matrix>
  static SoftmaxLayer borrow(Matrix&& W) = delete;

  /// Takes W [V×d] and b [V] (empty: no bias) over.
  static SoftmaxLayer own(RowMajorMatrix W, Eigen::VectorXf b = {}) {
    struct Storage {
      RowMajorMatrix W;
      Eigen::VectorXf b;
    };
    auto storage = std::make_shared<const Storage>(Storage{std::move(W), std::move(b)});
    return own(describe(storage->W, storage->b.data(), storage->b.size()), storage->b.size(), storage);
  }

  /// Views rows of any stored type. `bias_count` is the number of biases behind `rows.bias` (0 when null).
  static SoftmaxLayer borrow(const kernels::Rows& rows, std::ptrdiff_t bias_count);

  /// The same, kept alive by `storage`: a mapped file, say.
  static SoftmaxLayer own(const kernels::Rows& rows, std::ptrdiff_t bias_count,
                          std::shared_ptr<const void> storage);

  /// The same layer, sharing its weights, with a scale and a soft cap for its logits in place of those it
  /// has. Throws Error for values that LogitTransform does not allow.
  SoftmaxLayer with(const LogitTransform& transform) const;

  /// V, the number of tokens.
  std::size_t vocab() const { return rows_.count; }
  /// d, the length of a context vector.
  std::size_t dim() const { return rows_.dim; }
  /// How W is stored.
  WeightType weight_type() const { return rows_.type; }
  /// Whether there is a b.
  bool has_bias() const { return rows_.bias != nullptr; }
  /// The logit scale and the soft cap.
  const LogitTransform& transform() const { return rows_.transform; }

  /// The rows as the kernels take them.
  const kernels::Rows& rows() const { return rows_; }

  /// The same without the transform: their logits are W·h + b, in the order of the layer's.
  kernels::Rows products() const {
    kernels::Rows rows = rows_;
    rows.transform = {};
    return rows;
  }

  /// Bytes of weights, scales and biases: what one full product reads.
  std::size_t bytes() const { return rows_.bytes(rows_.count); }

  /// W as float32 [V×d], a copy: for building an index.
  RowMajorMatrix weights() const {
    RowMajorMatrix W(static_cast<Eigen::Index>(vocab()), static_cast<Eigen::Index>(dim()));
    for (std::size_t token = 0; token < vocab(); ++token) copy_row(token, W.data() + token * dim());
    return W;
  }

  /// b as a vector [V], zeros where the layer has none.
  Eigen::VectorXf biases() const {
    Eigen::VectorXf b(static_cast<Eigen::Index>(vocab()));
    if (has_bias()) {
      std::copy_n(rows_.bias, vocab(), b.data());
    } else {
      std::fill_n(b.data(), vocab(), 0.0F);
    }
    return b;
  }

  /// Writes row `token` as float32 [d] to `out`.
  void copy_row(std::size_t token, float* out) const;

 private:
  explicit SoftmaxLayer(const kernels::Rows& rows, std::shared_ptr<const void> storage)
      : rows_(rows), storage_(std::move(storage)) {}

  template <class Matrix>
  static kernels::Rows describe(const Matrix& W, const float* b, std::ptrdiff_t bias_count) {
    kernels::Rows rows;
    rows.data = W.data();
    rows.bias = bias_count == 0 ? nullptr : b;
    rows.count = static_cast<std::size_t>(W.rows());
    rows.dim = static_cast<std::size_t>(W.cols());
    rows.stride = static_cast<std::size_t>(W.outerStride());
    return rows;
  }

  kernels::Rows rows_;
  std::shared_ptr<const void> storage_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What there is to say of vectors of another length than the layer's rows.
inline std::string other_dimension(std::size_t length, const SoftmaxLayer& layer) {
  return "the layer's dimension is " + std::to_string(layer.dim()) +
         (length == layer.vocab() ? ", and W has " + std::to_string(length) + " rows: is it transposed?"
                                  : "");
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/softmax_layer-inl.hpp"
#endif
