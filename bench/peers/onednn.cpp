// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "peers/full_softmax.hpp"
#include "peers/peers.hpp"

namespace topksoftmax::bench {
namespace {

using dnnl::memory;

memory::dims matrix(std::size_t rows, std::size_t columns) {
  return {static_cast<memory::dim>(rows), static_cast<memory::dim>(columns)};
}

/// oneDNN's inner product in float32, its weights in the layout that it likes best for single queries.
class OneDnnProduct {
 public:
  static constexpr std::string_view name = "peer:onednn";

  explicit OneDnnProduct(const SoftmaxLayer& layer)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), vocab_(layer.vocab()), dim_(layer.dim()) {
    W_ = layer.weights();
    b_ = layer.biases();
    make(1);
  }

  void operator()(const float* H, std::size_t batch, std::size_t stride, float* logits) const {
    const std::scoped_lock lock(mutex_);  // primitives hold the memory that they work on
    // oneDNN counts on OpenMP's threads; a row of the table is one thread's work.
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const auto found = primitives_.find(batch);
    const Primitive& primitive = found != primitives_.end() ? found->second : make(batch);
    std::vector<float> packed;
    if (stride != dim_ && batch > 1) {
      for (std::size_t q = 0; q < batch; ++q)
        packed.insert(packed.end(), H + q * stride, H + q * stride + dim_);
      H = packed.data();
    }
    primitive.source.set_data_handle(const_cast<float*>(H));
    primitive.target.set_data_handle(logits);
    primitive.product.execute(stream_, {{DNNL_ARG_SRC, primitive.source},
                                        {DNNL_ARG_WEIGHTS, primitive.weights},
                                        {DNNL_ARG_BIAS, primitive.bias},
                                        {DNNL_ARG_DST, primitive.target}});
    stream_.wait();
    omp_set_num_threads(threads);
  }

 private:
  struct Primitive {
    dnnl::inner_product_forward product;
    mutable memory source;
    memory weights;
    memory bias;
    mutable memory target;
  };

  const Primitive& make(std::size_t batch) const {
    using type = memory::data_type;
    using tag = memory::format_tag;
    const memory::desc source(matrix(batch, dim_), type::f32, tag::ab);
    const memory::desc weights(matrix(vocab_, dim_), type::f32, tag::any);
    const memory::desc bias({static_cast<memory::dim>(vocab_)}, type::f32, tag::a);
    const memory::desc target(matrix(batch, vocab_), type::f32, tag::ab);
    const dnnl::inner_product_forward::desc description(dnnl::prop_kind::forward_inference, source, weights,
                                                        bias, target);
    const dnnl::inner_product_forward::primitive_desc chosen(description, engine_);
    memory plain({matrix(vocab_, dim_), type::f32, tag::ab}, engine_, const_cast<float*>(W_.data()));
    memory best = plain;
    if (chosen.weights_desc() != plain.get_desc()) {
      best = memory(chosen.weights_desc(), engine_);
      dnnl::reorder(plain, best).execute(stream_, plain, best);
      stream_.wait();
    }
    return primitives_
        .emplace(batch, Primitive{dnnl::inner_product_forward(chosen), memory(source, engine_, nullptr), best,
                                  memory(bias, engine_, const_cast<float*>(b_.data())),
                                  memory(target, engine_, nullptr)})
        .first->second;
  }

  dnnl::engine engine_;
  mutable dnnl::stream stream_;
  std::size_t vocab_;
  std::size_t dim_;
  RowMajorMatrix W_;
  Eigen::VectorXf b_;
  mutable std::map<std::size_t, Primitive> primitives_;  ///< by batch
  mutable std::mutex mutex_;
};

}  // namespace

Backend onednn_peer() {
  return full_softmax_peer<OneDnnProduct>("oneDNN's inner product, and a partial sort");
}

}  // namespace topksoftmax::bench
