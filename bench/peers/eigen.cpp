// SPDX-License-Identifier: Apache-2.0
#include "peers/full_softmax.hpp"
#include "peers/native_eigen.hpp"
#include "peers/peers.hpp"

namespace topksoftmax::bench {
namespace {

/// Eigen's matrix–vector product, and its matrix product for batches.
class EigenProduct : public Float32Product {
 public:
  static constexpr std::string_view name = "peer:eigen";

  explicit EigenProduct(const SoftmaxLayer& layer) : rows_(layer.rows()) {}

  void operator()(const float* H, std::size_t batch, std::size_t stride, float* logits) const {
    eigen_product(static_cast<const float*>(rows_.data), rows_.count, rows_.dim, rows_.stride, rows_.bias, H,
                  batch, stride, logits);
  }

 private:
  kernels::Rows rows_;
};

}  // namespace

BackendDescription eigen_peer() {
  return full_softmax_peer<EigenProduct>(
      "Eigen's matrix-vector product, compiled for this machine, and the selection of Fused");
}

}  // namespace topksoftmax::bench
