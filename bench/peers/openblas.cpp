// SPDX-License-Identifier: Apache-2.0
#include <cblas.h>

#include <algorithm>

#include "peers/full_softmax.hpp"
#include "peers/peers.hpp"

namespace topksoftmax::bench {
namespace {

blasint size(std::size_t n) {
  return static_cast<blasint>(n);
}

/// OpenBLAS's sgemv on the rows as they lie, and its sgemm for batches, each on the calling thread alone.
class OpenBlasProduct : public Float32Product {
 public:
  static constexpr std::string_view name = "peer:openblas";

  explicit OpenBlasProduct(const SoftmaxLayer& layer) : rows_(layer.rows()) { openblas_set_num_threads(1); }

  void operator()(const float* H, std::size_t batch, std::size_t stride, float* logits) const {
    for (std::size_t q = 0; q < batch; ++q) {
      float* const out = logits + q * rows_.count;
      if (rows_.bias == nullptr) {
        std::fill_n(out, rows_.count, 0.0F);
      } else {
        std::copy_n(rows_.bias, rows_.count, out);
      }
    }
    const auto* const W = static_cast<const float*>(rows_.data);
    if (batch == 1) {
      cblas_sgemv(CblasRowMajor, CblasNoTrans, size(rows_.count), size(rows_.dim), 1.0F, W,
                  size(rows_.stride), H, 1, 1.0F, logits, 1);
    } else {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size(batch), size(rows_.count), size(rows_.dim),
                  1.0F, H, size(stride), W, size(rows_.stride), 1.0F, logits, size(rows_.count));
    }
  }

 private:
  kernels::Rows rows_;
};

}  // namespace

BackendDescription openblas_peer() {
  BackendDescription peer =
      full_softmax_peer<OpenBlasProduct>("OpenBLAS's sgemv (sgemm for batches), and the selection of Fused");
  peer.builder.values = [](std::string_view backend, const Settings& settings) {
    check_known(backend, {}, settings);
    return Settings{{"kernels", openblas_get_corename()}};
  };
  return peer;
}

}  // namespace topksoftmax::bench
