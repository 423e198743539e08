// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

struct PcaMipsOptions {
  /// Levels of the tree: at most 24, and none that would leave leaves without a row.
  std::size_t depth = 7;
  /// Leaves that a query visits, at least 1; 0: depth + 1, as many as are reached with one wrong turn at
  /// most. A query's `effort` overrides it.
  std::size_t leaves = 0;
};

class PcaTree;

/// Screens by a tree over the rows: candidates are the tokens in the leaves nearest to a context.
class TOPKSOFTMAX_EXPORT PcaMipsScreener {
 public:
  /// `leaves` as in PcaMipsOptions.
  PcaMipsScreener(std::shared_ptr<const PcaTree> tree, std::size_t leaves)
      : tree_(std::move(tree)), leaves_(leaves) {}

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "pca-mips"; }
  std::size_t index_bytes() const;
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const PcaTree> tree_;
  std::size_t leaves_;
};

/// "Speeding Up the Xbox Recommender System Using a Euclidean Transformation for Inner-Product Spaces"
/// (Bachrach et al., RecSys 2014): PCA-MIPS.
///
/// Rows with their biases are lifted to equal lengths (Ippt), so that the largest logit is the smallest
/// distance. Level l of the tree splits every node at its median along the l-th principal component of the
/// lifted rows. A query goes to the leaf it belongs to, and (the paper's neighbourhood boosting) to leaves
/// beyond the splits nearest to it: as many leaves as asked for, by the sum of the squared distances to the
/// splits crossed. log Z is over the candidates.
///
/// Effort: leaves; from 2^depth on every token is scored.
///
/// Cost of a query: depth·d multiply-adds, leaves·depth comparisons, and leaves·V/2^depth·d weights. Index:
/// 4·V bytes, the components and 2^depth medians.
class TOPKSOFTMAX_EXPORT PcaMips final : public ScreenedSoftmax<PcaMipsScreener> {
 public:
  /// Cost: V·d² + d³. Throws Error for unusable options.
  static std::unique_ptr<PcaMips> build(SoftmaxLayer layer, const PcaMipsOptions& options = {});

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<PcaMips> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<PcaMips> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace topksoftmax
