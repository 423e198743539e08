// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "peers/full_softmax.hpp"
#include "peers/native_eigen.hpp"
#include "peers/one_thread.hpp"
#include "peers/peers.hpp"

namespace topksoftmax::bench {
namespace {

using dnnl::memory;

memory::dims matrix(std::size_t rows, std::size_t columns) {
  return {static_cast<memory::dim>(rows), static_cast<memory::dim>(columns)};
}

/// oneDNN's inner product W·h (+ b), float32 out of `type`, its weights in the layout that it likes best for
/// that many contexts, reordered once.
class InnerProduct {
 public:
  /// W [vocab×dim] of `type` and b [vocab] (null: none) must outlive it.
  InnerProduct(memory::data_type type, const void* W, const float* b, std::size_t vocab, std::size_t dim,
               dnnl::primitive_attr attributes)
      : engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        type_(type),
        W_(W),
        b_(b),
        vocab_(vocab),
        dim_(dim),
        attributes_(std::move(attributes)) {
    const OneThread one_thread;  // primitives keep the number of threads that there are when they are made
    make(1);
  }

  /// out [batch×vocab] of H [batch×dim].
  void operator()(const void* H, std::size_t batch, float* out) const {
    const std::scoped_lock lock(mutex_);  // primitives hold the memory that they work on
    const OneThread one_thread;
    const auto found = primitives_.find(batch);
    const Primitive& primitive = found != primitives_.end() ? found->second : make(batch);
    primitive.source.set_data_handle(const_cast<void*>(H));
    primitive.target.set_data_handle(out);
    primitive.product.execute(stream_, primitive.arguments);
    stream_.wait();
  }

  /// Of the weights that were reordered: for each number of contexts so far, where oneDNN likes another
  /// layout than theirs.
  std::size_t reordered_bytes() const {
    const std::scoped_lock lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [batch, primitive] : primitives_) bytes += primitive.reordered_bytes;
    return bytes;
  }

 private:
  struct Primitive {
    dnnl::inner_product_forward product;
    mutable memory source;
    mutable memory target;
    std::unordered_map<int, memory> arguments;
    std::size_t reordered_bytes;
  };

  const Primitive& make(std::size_t batch) const {
    using type = memory::data_type;
    using tag = memory::format_tag;
    using forward = dnnl::inner_product_forward;
    const memory::desc source(matrix(batch, dim_), type_, tag::ab);
    const memory::desc weights(matrix(vocab_, dim_), type_, tag::any);
    const memory::desc bias({static_cast<memory::dim>(vocab_)}, type::f32, tag::a);
    const memory::desc target(matrix(batch, vocab_), type::f32, tag::ab);
    const auto kind = dnnl::prop_kind::forward_inference;
    const forward::desc description = b_ != nullptr ? forward::desc(kind, source, weights, bias, target)
                                                    : forward::desc(kind, source, weights, target);
    const forward::primitive_desc chosen = choose(description, batch);
    memory plain({matrix(vocab_, dim_), type_, tag::ab}, engine_, const_cast<void*>(W_));
    memory best = plain;
    std::size_t reordered_bytes = 0;
    if (chosen.weights_desc() != plain.get_desc()) {
      best = memory(chosen.weights_desc(), engine_);
      reordered_bytes = best.get_desc().get_size();
      dnnl::reorder(plain, best).execute(stream_, plain, best);
      stream_.wait();
    }
    const memory from(source, engine_, nullptr);
    const memory to(target, engine_, nullptr);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, from}, {DNNL_ARG_WEIGHTS, best}, {DNNL_ARG_DST, to}};
    if (b_ != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(bias, engine_, const_cast<float*>(b_)));
    return primitives_
        .emplace(batch, Primitive{forward(chosen), from, to, std::move(arguments), reordered_bytes})
        .first->second;
  }

  /// oneDNN's own choice; for few contexts without AMX, whose tiles they leave empty: VNNI is faster then.
  dnnl::inner_product_forward::primitive_desc choose(const dnnl::inner_product_forward::desc& description,
                                                     std::size_t batch) const {
    constexpr std::size_t worth_tiles = 8;
    dnnl::inner_product_forward::primitive_desc first(description, attributes_, engine_);
    dnnl::inner_product_forward::primitive_desc next(description, attributes_, engine_);
    const bool tiles = std::string_view(first.impl_info_str()).find("amx") != std::string_view::npos;
    return batch < worth_tiles && tiles && next.next_impl() ? next : first;
  }

  dnnl::engine engine_;
  mutable dnnl::stream stream_;
  memory::data_type type_;
  const void* W_;
  const float* b_;
  std::size_t vocab_;
  std::size_t dim_;
  dnnl::primitive_attr attributes_;
  mutable std::map<std::size_t, Primitive> primitives_;  ///< by batch
  mutable std::mutex mutex_;
};

class OneDnnProduct : public Float32Product {
 public:
  static constexpr std::string_view name = "peer:onednn";

  explicit OneDnnProduct(const SoftmaxLayer& layer)
      : dim_(layer.dim()),
        W_(layer.weights()),
        b_(layer.biases()),
        product_(memory::data_type::f32, W_.data(), b_.data(), layer.vocab(), dim_, {}) {}

  std::size_t index_bytes() const {
    return static_cast<std::size_t>(W_.size() + b_.size()) * sizeof(float) + product_.reordered_bytes();
  }

  void operator()(const float* H, std::size_t batch, std::size_t stride, float* logits) const {
    std::vector<float> packed;
    if (stride != dim_ && batch > 1) {
      for (std::size_t q = 0; q < batch; ++q)
        packed.insert(packed.end(), H + q * stride, H + q * stride + dim_);
      H = packed.data();
    }
    product_(H, batch, logits);
  }

 private:
  std::size_t dim_;
  RowMajorMatrix W_;
  Eigen::VectorXf b_;
  InnerProduct product_;
};

/// bfloat16 in, float32 out: weights and contexts are rounded to the nearest, which leaves the weights of a
/// layer of bfloat16 as they are. Nothing is scored again.
class OneDnnBfloat16Product {
 public:
  static constexpr std::string_view name = "peer:onednn-bf16";
  static constexpr bool is_exact_fp32 = false;

  explicit OneDnnBfloat16Product(const SoftmaxLayer& layer)
      : dim_(layer.dim()),
        W_(layer.weights().cast<Eigen::bfloat16>()),
        b_(layer.biases()),
        product_(memory::data_type::bf16, W_.data(), b_.data(), layer.vocab(), dim_, {}) {}

  /// Weights and biases.
  std::size_t bytes() const {
    return static_cast<std::size_t>(W_.size()) * sizeof(Eigen::bfloat16) +
           static_cast<std::size_t>(b_.size()) * sizeof(float);
  }
  std::size_t index_bytes() const { return bytes() + product_.reordered_bytes(); }

  void operator()(const float* H, std::size_t batch, std::size_t stride, float* logits) const {
    const auto rows = static_cast<Eigen::Index>(batch);
    const auto columns = static_cast<Eigen::Index>(dim_);
    const Eigen::Map<const RowMajorMatrix, 0, Eigen::OuterStride<>> contexts(
        H, rows, columns, Eigen::OuterStride<>(static_cast<Eigen::Index>(stride)));
    const Rows rounded = contexts.cast<Eigen::bfloat16>();
    product_(rounded.data(), batch, logits);
  }

 private:
  using Rows = Eigen::Matrix<Eigen::bfloat16, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  std::size_t dim_;
  Rows W_;
  Eigen::VectorXf b_;
  InnerProduct product_;
};

/// Signed bytes, and what they are to be multiplied by.
float round_to_bytes(const float* x, std::size_t count, std::int8_t* q) {
  const Eigen::Map<const Eigen::VectorXf> values(x, static_cast<Eigen::Index>(count));
  const float largest = values.cwiseAbs().maxCoeff();
  const float scale = std::max(largest, std::numeric_limits<float>::min()) / 127.0F;
  for (std::size_t j = 0; j < count; ++j) q[j] = static_cast<std::int8_t>(std::lrint(x[j] / scale));
  return scale;
}

/// int8 in, float32 out: rows with a scale each, which is oneDNN's scale of an output channel, contexts with
/// one. Logits are what these make of it; nothing is scored again.
class OneDnnInt8Product {
 public:
  static constexpr std::string_view name = "peer:onednn-int8";
  static constexpr bool is_exact_fp32 = false;

  explicit OneDnnInt8Product(const SoftmaxLayer& layer)
      : vocab_(layer.vocab()), dim_(layer.dim()), W_(vocab_ * dim_), b_(layer.biases()) {
    const RowMajorMatrix W = layer.weights();
    std::vector<float> scales(vocab_);
    for (std::size_t v = 0; v < vocab_; ++v) {
      scales[v] = round_to_bytes(W.row(static_cast<Eigen::Index>(v)).data(), dim_, W_.data() + v * dim_);
    }
    dnnl::primitive_attr attributes;
    attributes.set_output_scales(1 << 1, scales);
    product_ = std::make_unique<InnerProduct>(memory::data_type::s8, W_.data(), nullptr, vocab_, dim_,
                                              std::move(attributes));
  }

  /// Weights, scales and biases.
  std::size_t bytes() const { return W_.size() + 2 * vocab_ * sizeof(float); }
  std::size_t index_bytes() const { return bytes() + product_->reordered_bytes(); }

  void operator()(const float* H, std::size_t batch, std::size_t stride, float* logits) const {
    std::vector<std::int8_t> contexts(batch * dim_);
    std::vector<float> scales(batch);
    for (std::size_t q = 0; q < batch; ++q) {
      scales[q] = round_to_bytes(H + q * stride, dim_, contexts.data() + q * dim_);
    }
    (*product_)(contexts.data(), batch, logits);
    for (std::size_t q = 0; q < batch; ++q) {
      eigen_scale_and_add(scales[q], b_.data(), vocab_, logits + q * vocab_);
    }
  }

 private:
  std::size_t vocab_;
  std::size_t dim_;
  std::vector<std::int8_t> W_;
  Eigen::VectorXf b_;
  std::unique_ptr<InnerProduct> product_;
};

}  // namespace

BackendDescription onednn_peer() {
  return full_softmax_peer<OneDnnProduct>("oneDNN's inner product, and the selection of Fused");
}

BackendDescription onednn_bf16_peer() {
  return full_softmax_peer<OneDnnBfloat16Product>(
      "oneDNN's inner product of bfloat16 rows and contexts, and the selection of Fused: approximate");
}

BackendDescription onednn_int8_peer() {
  return full_softmax_peer<OneDnnInt8Product>(
      "oneDNN's inner product in int8, a scale a row and one a context, and the selection of Fused: "
      "approximate");
}

}  // namespace topksoftmax::bench
