// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The full softmax in one pass: bias, online log-sum-exp and n-best are fused into the product, and no more
/// than 512 logits exist at a time (of a batch 64 for each of up to 64 contexts). A query that threads share
/// keeps all V.
///
/// With k = 1 this is Algorithm 2 of "Faster Neural Machine Translation Inference" (§3.1), and Algorithm 3
/// without probabilities; larger k is its n-best extension. (The paper's printed Algorithm 2 loses the bias
/// in its second loop and so sums nothing; here log Z is over exp(p_i + b_i − max) of all i.)
///
/// Cost of a query: reads V·d weights, once for a whole batch; where an eighth of the tokens or fewer are
/// allowed, only their rows, for each context. A query on several threads, and a batch of up to 64 contexts
/// there, take memory for V logits of each. No index. Effort: ignored.
class TOPKSOFTMAX_EXPORT Fused final : public TopKSoftmax {
 public:
  /// The backend over a layer. Cost: none.
  static std::unique_ptr<Fused> make(SoftmaxLayer layer) { return std::make_unique<Fused>(std::move(layer)); }
  /// The same by value.
  explicit Fused(SoftmaxLayer layer) : TopKSoftmax(std::move(layer)) {}

  std::string_view name() const override { return "fused"; }
  std::size_t index_bytes() const override { return 0; }
  bool exhaustive() const override { return true; }
  bool certifies() const override { return true; }

  /// The kind of its indexes.
  static constexpr std::string_view kind = "fused";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<Fused> load(const IndexReader& in);

 private:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override;
  void do_save(IndexWriter& out) const override;
  void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override;
  std::size_t shared_bytes() const override { return layer().bytes(); }
};

inline void Fused::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  answer_from_all(layer(), query, workspace, answer);
}

inline void Fused::do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const {
  answer_batch_from_all(layer(), batch, workspace, answers);
}

inline void Fused::do_save(IndexWriter& out) const {
  out.kind(name());
}

inline std::unique_ptr<Fused> Fused::load(const IndexReader& in) {
  return make(in.layer());
}

}  // namespace TOPKSOFTMAX_NAMESPACE
