// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "topksoftmax/export.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax {

/// The full softmax step by step, as a textbook writes it: all logits, then mask and bias, maximum,
/// exponentials and their sum, then the k best. The ground truth of every precision; `Fused` gives the same
/// ids and logits faster.
///
/// Cost of a query: reads V·d weights; three passes over V logits in the workspace. No index. Effort:
/// ignored.
class TOPKSOFTMAX_EXPORT Exact final : public TopKSoftmax {
 public:
  static std::unique_ptr<Exact> make(SoftmaxLayer layer) { return std::make_unique<Exact>(std::move(layer)); }
  explicit Exact(SoftmaxLayer layer) : TopKSoftmax(std::move(layer)) {}

  std::string_view name() const override { return "exact"; }
  std::size_t index_bytes() const override { return 0; }
  bool exhaustive() const override { return true; }
  bool certifies() const override { return true; }

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<Exact> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<Exact> load(const IndexReader& in);

 private:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override;
  void do_save(IndexWriter& out) const override;
};

}  // namespace topksoftmax
