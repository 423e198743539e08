// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "peers/describe_peer.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/rows/float32_copy.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::bench {

/// What products of rows in float32 have in common.
struct Float32Product {
  static constexpr bool is_exact_fp32 = true;

  std::size_t index_bytes() const { return 0; }
};

/// The layer itself where its weights are float32; otherwise a copy of it in float32, which is what libraries
/// that know nothing else are given.
inline SoftmaxLayer in_float32(const SoftmaxLayer& layer) {
  if (layer.weight_type() == WeightType::float32) return layer;
  return float32_copy(layer);
}

/// What a FullSoftmax works in.
struct FullSoftmaxScratch {
  ScratchBuffer logits;
  ScratchBuffer best;
};

/// The full softmax as an engine does it around some library's matrix product: all logits, then their
/// log-sum-exp and the best of them in one pass of this library's kernels, the fastest at hand. Product is a
/// class with
///   static constexpr std::string_view name;
///   static constexpr bool is_exact_fp32;
///   explicit Product(const SoftmaxLayer&);  // of float32 where is_exact_fp32; it outlives the product
///   std::size_t index_bytes() const;        // what it keeps itself
///   void operator()(const float* H, std::size_t batch, std::size_t stride, float* logits) const;
/// which writes W·h + b [batch×V]; where these are approximate,
///   std::size_t bytes() const;
/// says what it reads, and log Z counts as one of approximate logits.
template <class Product>
class FullSoftmax final : public TopKSoftmax {
 public:
  explicit FullSoftmax(SoftmaxLayer layer)
      : TopKSoftmax(std::move(layer)),
        read_(Product::is_exact_fp32 ? in_float32(this->layer()) : this->layer()),
        product_(read_) {}

  std::string_view name() const override { return Product::name; }
  std::size_t index_bytes() const override {
    const bool is_copy = Product::is_exact_fp32 && layer().weight_type() != WeightType::float32;
    return (is_copy ? read_.bytes() : 0) + product_.index_bytes();
  }

 private:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    do_query_batch(QueryBatch(query), workspace, &answer);
  }

  void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override {
    const std::size_t vocab = layer().vocab();
    auto* logits = workspace.scratch<FullSoftmaxScratch>().logits.get<float>(batch.size() * vocab);
    product_(batch.contexts(), batch.size(), batch.stride(), logits);
    for (std::size_t q = 0; q < batch.size(); ++q, logits += vocab) {
      kernels::transform(layer().transform(), logits, vocab);
      kernels::apply_edits(batch.edits(q), vocab, logits);
      finish(batch[q], logits, workspace, answers[q]);
    }
  }

  void finish(const Query& query, const float* logits, Workspace& workspace, TopK& answer) const {
    const std::size_t vocab = layer().vocab();
    auto* const best = workspace.scratch<FullSoftmaxScratch>().best.get<ScoredToken>(query.k);
    kernels::TopKHeap heap(best, query.k);
    kernels::LogSumExp sum;
    kernels::fused_select(logits, nullptr, vocab, heap, query.probabilities ? &sum : nullptr);
    store_tokens(heap.sort(), answer);
    if (query.probabilities) {
      store_log_z(Product::is_exact_fp32 ? Normalizer::exact : Normalizer::low_rank, sum.value(), answer);
    } else {
      store_no_log_z(answer);
    }
    answer.certified = false;
    if constexpr (Product::is_exact_fp32) {
      answer.work = full_scan_work(read_);
    } else {
      answer.work = {.bytes_read = product_.bytes(), .screened = vocab};
    }
  }

  SoftmaxLayer read_;  ///< what the product is of
  Product product_;
};

/// Such a peer as a row of the table.
template <class Product>
BackendDescription full_softmax_peer(std::string summary) {
  BackendDescription peer = describe_peer<NoOptions>(
      std::string(Product::name), std::move(summary), [](const BuildMaterial& from, NoOptions) {
        return std::make_unique<FullSoftmax<Product>>(from.layer);
      });
  peer.traits.scans_all = Product::is_exact_fp32;
  return peer;
}

}  // namespace topksoftmax::bench
