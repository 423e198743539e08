// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "topksoftmax/export.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax {

/// The full softmax in one pass: bias, online log-sum-exp and n-best are fused into the product, and no more
/// than a block of 64 logits exists at a time.
///
/// With k = 1 this is Algorithm 2 of "Faster Neural Machine Translation Inference" (§3.1), and Algorithm 3
/// without probabilities; larger k is its n-best extension. (The paper's printed Algorithm 2 loses the bias
/// in its second loop and so sums nothing; here log Z is over exp(p_i + b_i − max) of all i.)
///
/// Cost of a query: reads V·d weights, once for a whole batch. No index. Effort: ignored.
class TOPKSOFTMAX_EXPORT Fused final : public TopKSoftmax {
 public:
  static std::unique_ptr<Fused> make(SoftmaxLayer layer) { return std::make_unique<Fused>(std::move(layer)); }
  explicit Fused(SoftmaxLayer layer) : TopKSoftmax(std::move(layer)) {}

  std::string_view name() const override { return "fused"; }
  std::size_t index_bytes() const override { return 0; }
  bool exhaustive() const override { return true; }
  bool certifies() const override { return true; }

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<Fused> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<Fused> load(const IndexReader& in);

 private:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override;
  void do_save(IndexWriter& out) const override;
  void do_query_batch(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace,
                      TopK* answers) const override;
};

}  // namespace topksoftmax
