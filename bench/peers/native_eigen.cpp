// SPDX-License-Identifier: Apache-2.0
#include "peers/native_eigen.hpp"

#include <Eigen/Core>

namespace topksoftmax::bench {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>>;
using Vector = Eigen::Map<const Eigen::VectorXf>;

Eigen::Index index(std::size_t n) {
  return static_cast<Eigen::Index>(n);
}

}  // namespace

void eigen_product(const float* W, std::size_t vocab, std::size_t dim, std::size_t stride, const float* b,
                   const float* H, std::size_t batch, std::size_t context_stride, float* logits) {
  const Rows weights(W, index(vocab), index(dim), Eigen::OuterStride<>(index(stride)));
  if (batch == 1) {
    Eigen::Map<Eigen::VectorXf> out(logits, index(vocab));
    out.noalias() = weights * Vector(H, index(dim));
    if (b != nullptr) out += Vector(b, index(vocab));
    return;
  }
  const Rows contexts(H, index(batch), index(dim), Eigen::OuterStride<>(index(context_stride)));
  Eigen::Map<RowMajor> out(logits, index(batch), index(vocab));
  out.noalias() = contexts * weights.transpose();
  if (b != nullptr) out.rowwise() += Vector(b, index(vocab)).transpose();
}

void eigen_scale_and_add(float scale, const float* b, std::size_t count, float* logits) {
  Eigen::Map<Eigen::VectorXf> x(logits, index(count));
  x = scale * x + Vector(b, index(count));
}

void eigen_add(const float* a, const float* b, std::size_t count, float* sums) {
  Eigen::Map<Eigen::VectorXf>(sums, index(count)) = Vector(a, index(count)) + Vector(b, index(count));
}

}  // namespace topksoftmax::bench
