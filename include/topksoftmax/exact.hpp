// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "topksoftmax/answer_scratch.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The full softmax step by step, as a textbook writes it: all logits, then mask and bias, maximum,
/// exponentials and their sum, then the k best. The ground truth of every precision; `Fused` gives the same
/// ids and logits faster.
///
/// Cost of a query: reads V·d weights; three passes over V logits in the workspace. No index. Effort:
/// ignored.
class TOPKSOFTMAX_EXPORT Exact final : public TopKSoftmax {
 public:
  /// The backend over a layer. Cost: none.
  static std::unique_ptr<Exact> make(SoftmaxLayer layer) { return std::make_unique<Exact>(std::move(layer)); }
  /// The same by value.
  explicit Exact(SoftmaxLayer layer) : TopKSoftmax(std::move(layer)) {}

  std::string_view name() const override { return "exact"; }
  std::size_t index_bytes() const override { return 0; }
  bool exhaustive() const override { return true; }
  bool certifies() const override { return true; }

  /// The kind of its indexes.
  static constexpr std::string_view kind = "exact";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<Exact> load(const IndexReader& in);

 private:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override;
  void do_save(IndexWriter& out) const override;
};

inline void Exact::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  const std::size_t vocab = layer().vocab();
  detail::AnswerScratch& scratch = workspace.scratch<detail::AnswerScratch>();
  auto* const logits = scratch.logits.get<float>(vocab);
  scan(workspace, layer().rows(), 0, vocab, query.h, logits);
  kernels::apply_edits(query.edits, vocab, logits);

  kernels::LogSumExp sum;
  if (query.probabilities) kernels::add_exp(logits, vocab, sum);
  kernels::TopKHeap heap(scratch.best.get<ScoredToken>(query.k), query.k);
  kernels::select(logits, nullptr, vocab, heap);
  store_exact(heap, query, sum, full_scan_work(layer()), answer);
}

inline void Exact::do_save(IndexWriter& out) const {
  out.kind(name());
}

inline std::unique_ptr<Exact> Exact::load(const IndexReader& in) {
  return make(in.layer());
}

}  // namespace TOPKSOFTMAX_NAMESPACE
