// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/learning/outside_option.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/storage/stored_lists.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What PcaMipsScreener works in.
struct PcaScratch {
  ScratchBuffer projections;
  ScratchBuffer branches;
  ScratchBuffer ids;
};

class PcaTree;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of PcaMips. What builds throws Error for values out of their ranges.
struct PcaMipsOptions {
  /// Levels of the tree: at most 24, and none that would leave leaves without a row.
  std::size_t depth = 7;
  /// Leaves that a query visits, at least 1; 0: depth + 1, as many as are reached with one wrong turn at
  /// most. A query's `effort` overrides it.
  std::size_t leaves = 0;
  /// Contexts, evenly spaced ones, that the mass outside of the leaves is learned from
  /// (Normalizer::learned); 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 5000;

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("depth", options.depth, "levels of the tree", at_most(24));
    visit("leaves", options.leaves, "that a query visits; depth + 1 if 0");
    detail::visit_outside_sample(options, visit);
  }
};

/// Screens by a tree over the rows: candidates are the tokens in the leaves nearest to a context.
class TOPKSOFTMAX_EXPORT PcaMipsScreener {
 public:
  /// `leaves` as in PcaMipsOptions.
  PcaMipsScreener(std::shared_ptr<const detail::PcaTree> tree, std::size_t leaves)
      : tree_(std::move(tree)), leaves_(leaves) {}

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "pca-mips"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const detail::PcaTree> tree_;
  std::size_t leaves_;
};

/// "Speeding Up the Xbox Recommender System Using a Euclidean Transformation for Inner-Product Spaces"
/// (Bachrach et al., RecSys 2014): PCA-MIPS.
///
/// Rows with their biases are lifted to equal lengths (Ippt), so that the largest logit is the smallest
/// distance. Level l of the tree splits every node at its median along the l-th principal component of the
/// lifted rows. A query goes to the leaf it belongs to, and (the paper's neighbourhood boosting) to leaves
/// beyond the splits nearest to it: as many leaves as asked for, by the sum of the squared distances to the
/// splits crossed.
///
/// log Z is over the candidates; where contexts have taught the mass of all other tokens, it counts that
/// too (Normalizer::learned; log_z_error() says how well), unless a query forbids more than a few tokens
/// (OutsideMass) or has another effort.
///
/// Effort: leaves; from 2^depth on every token is scored.
///
/// Cost of a query: depth·d multiply-adds, leaves·depth comparisons, and leaves·V/2^depth·d weights. Index:
/// 4·(V + 3·2^depth + depth·(d + 1)) bytes.
class TOPKSOFTMAX_EXPORT PcaMips final : public ScreenedSoftmax<PcaMipsScreener> {
 public:
  /// Cost: V·d·(d/2 + depth) + 3.5·d³ multiply-adds on the executor's threads and 4/3·d³ on one. Throws Error
  /// for unusable options. Defined in baselines/build_pca_mips.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<PcaMips> build(
      SoftmaxLayer layer, const PcaMipsOptions& options = {}, const Executor& executor = default_executor());

  /// The same with the mass outside of the candidates learned from contexts [N×d]. Cost: also min(N,
  /// outside_sample)·V·d multiply-adds, min(N, outside_sample)·V exponentials, and the queries. Throws Error
  /// also for contexts of another dimension or that are not finite. Defined in baselines/build_pca_mips.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<PcaMips> build(
      SoftmaxLayer layer, const ConstRows& contexts, const PcaMipsOptions& options = {},
      const Executor& executor = default_executor());

  /// The same for contexts in plain memory; no contexts: the first form. Defined in
  /// baselines/build_pca_mips.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<PcaMips> build(
      SoftmaxLayer layer, const Contexts& contexts, const PcaMipsOptions& options,
      const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "pca-mips";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<PcaMips> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A node that a query may go to, and the squared distances to the splits that it has crossed for it.
struct Branch {
  double distance;  ///< which squares of floats may be too large for
  std::uint32_t node;
};

inline bool farther(const Branch& a, const Branch& b) {
  return a.distance != b.distance ? a.distance > b.distance : a.node > b.node;
}

/// A perfect binary tree over the rows. Node 1 is the root, node n has children 2n (below its median) and
/// 2n + 1.
class PcaTree {
 public:
  /// Of this depth, or what less of it the rows allow. Defined in baselines/build_pca_mips.hpp.
  TOPKSOFTMAX_BUILD_INLINE PcaTree(const SoftmaxLayer& layer, std::size_t depth, const Executor& executor);

  /// Reads what save() has written, of a depth that is known to be possible.
  PcaTree(const IndexReader& in, std::size_t depth)
      : depth_(depth),
        components_(in.floats("components", {depth, in.dim()}), in.dim(),
                    in.floats("components.offsets", {depth})),
        medians_(in.floats("medians", {leaves()})) {
    const StoredArray<TokenId> ids = in.distinct_tokens("ids", {in.vocab()});
    tokens_ = {in.array<std::uint32_t>("starts", {2 * leaves() + 1}), ids};
    in.check_offsets("starts", tokens_.starts().span(), ids.size());
  }

  void save(IndexWriter& out) const {
    out.array("components", {components_.count(), components_.dim()}, components_.weights());
    out.array("components.offsets", {components_.count()}, components_.biases());
    out.array("medians", {medians_.size()}, medians_);
    out.array("starts", {tokens_.starts().size()}, tokens_.starts());
    out.array("ids", {tokens_.values().size()}, tokens_.values());
  }

  std::size_t vocab() const { return tokens_.values().size(); }
  std::size_t depth() const { return depth_; }
  std::size_t leaves() const { return std::size_t{1} << depth_; }
  kernels::Rows components() const { return components_.rows(); }
  bool is_leaf(std::uint32_t node) const { return node >= leaves(); }
  float median(std::uint32_t node) const { return medians_[node]; }

  /// The tokens of a leaf, ascending.
  std::span<const TokenId> tokens(std::uint32_t leaf) const { return tokens_[leaf]; }

  std::size_t bytes() const {
    return components().bytes(depth_) + medians_.span().size_bytes() + tokens_.bytes();
  }

 private:
  // What only the building constructor needs, defined with it.
  struct Nodes;
  TOPKSOFTMAX_BUILD_INLINE void split(const Eigen::MatrixXf& projections, std::uint32_t node,
                                      Eigen::Index level, std::size_t first, std::size_t last,
                                      Nodes& nodes) const;

  std::size_t depth_;
  StoredRows components_;                       ///< [depth]
  StoredArray<float> medians_;                  ///< [2^depth], of inner nodes
  StoredLists<TokenId, std::uint32_t> tokens_;  ///< [2·2^depth], of leaves; inner nodes have none
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Candidates PcaMipsScreener::screen(const Query& query, Workspace& workspace) const {
  const std::size_t usual = leaves_ != 0 ? leaves_ : tree_->depth() + 1;
  const std::size_t wanted = query.effort != 0 ? query.effort : usual;
  if (wanted >= tree_->leaves()) return Candidates::all();
  const kernels::Rows components = tree_->components();
  detail::PcaScratch& scratch = workspace.scratch<detail::PcaScratch>();
  auto* const projections = scratch.projections.get<float>(components.count);
  kernels::scan(components, 0, components.count, query.h, projections);

  auto* const heap = scratch.branches.get<detail::Branch>(wanted * tree_->depth() + 1);
  auto* const ids = scratch.ids.get<TokenId>(tree_->vocab());
  std::size_t found = 0;
  heap[0] = {0.0, 1};
  std::size_t size = 1;
  for (std::size_t visited = 0; visited < wanted; ++visited) {
    std::pop_heap(heap, heap + size, detail::farther);
    detail::Branch branch = heap[--size];
    for (std::size_t level = static_cast<std::size_t>(std::bit_width(branch.node)) - 1;
         !tree_->is_leaf(branch.node); ++level) {
      const double side =
          static_cast<double>(projections[level]) - static_cast<double>(tree_->median(branch.node));
      const std::uint32_t above = side >= 0.0 ? 1 : 0;
      heap[size++] = {branch.distance + side * side, 2 * branch.node + (1 - above)};
      std::push_heap(heap, heap + size, detail::farther);
      branch.node = 2 * branch.node + above;
    }
    const std::span<const TokenId> tokens = tree_->tokens(branch.node);
    std::copy(tokens.begin(), tokens.end(), ids + found);
    found += tokens.size();
  }
  Candidates candidates;
  candidates.ids = {ids, found};
  if (wanted == usual) candidates.group = 0;
  candidates.screened = wanted;
  candidates.bytes_read =
      components.bytes(components.count) + wanted * tree_->depth() * sizeof(float) + found * sizeof(TokenId);
  return candidates;
}

inline std::size_t PcaMipsScreener::index_bytes() const {
  return tree_->bytes();
}

inline void PcaMipsScreener::save(IndexWriter& out) const {
  out.kind(PcaMips::kind);
  out.option("depth", tree_->depth());
  out.option("leaves", leaves_);
  tree_->save(out);
}

inline std::unique_ptr<PcaMips> PcaMips::load(const IndexReader& in) {
  PcaMipsOptions options;
  in.option("depth", options.depth);
  in.option("leaves", options.leaves);
  in.check([&] { check_options("pca-mips", options); });
  auto tree = std::make_shared<const detail::PcaTree>(in, options.depth);
  return std::unique_ptr<PcaMips>(
      new PcaMips(in.layer(), PcaMipsScreener(std::move(tree), options.leaves), OutsideMass::load(in, 1)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
