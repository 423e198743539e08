// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

struct GreedyMipsOptions {
  /// B, candidates of a query, at least 1; V/10 unless given. A query's `effort` overrides it.
  std::optional<std::size_t> budget = std::nullopt;
};

class GreedyMipsIndex;

/// Screens by single products: candidates are the tokens with the largest w_j·h_j in any coordinate j.
class TOPKSOFTMAX_EXPORT GreedyMipsScreener {
 public:
  GreedyMipsScreener(std::shared_ptr<const GreedyMipsIndex> index, std::size_t budget)
      : index_(std::move(index)), budget_(budget) {}

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "greedy-mips"; }
  std::size_t index_bytes() const;
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const GreedyMipsIndex> index_;
  std::size_t budget_;
};

/// "A Greedy Approach for Budgeted Maximum Inner Product Search" (Yu, Hsieh, Lei and Dhillon, NIPS 2017).
///
/// Every coordinate has its tokens sorted by their weight (CreateMinMax of the paper's Algorithm 1,
/// complete), so that they are in the order of w_j·h_j for every h_j ≥ 0, and in the opposite one for others.
/// A heap of the coordinates' next products yields tokens in the order of max_j w_j·h_j until B different
/// ones are found (Algorithms 3 and 4). The bias is one more coordinate, of a context's that is 1 there.
/// Forbidden tokens are passed over. log Z is over the candidates.
///
/// Effort: B; from V on every token is scored.
///
/// Cost of a query: a step of a heap of d + 1 for every entry met, which are B and those met again, and B·d
/// weights. Index: 8·V·(d + 1) bytes, twice the layer.
class TOPKSOFTMAX_EXPORT GreedyMips final : public ScreenedSoftmax<GreedyMipsScreener> {
 public:
  /// Cost: V·log V·d. Throws Error for unusable options.
  static std::unique_ptr<GreedyMips> build(SoftmaxLayer layer, const GreedyMipsOptions& options = {});

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<GreedyMips> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<GreedyMips> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace topksoftmax
