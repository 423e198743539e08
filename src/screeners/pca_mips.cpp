// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/pca_mips.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/lifted_rows.hpp"
#include "stored_rows.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/stored_array.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "pca-mips";
constexpr std::size_t kDeepest = 24;

/// Throws Error for a depth that no tree has.
void check_depth(std::size_t depth) {
  if (depth > kDeepest) {
    throw Error("pca-mips: depth is " + std::to_string(depth) + "; it must be at most " +
                std::to_string(kDeepest));
  }
}

/// A node that a query may go to, and the squared distances to the splits that it has crossed for it.
struct Branch {
  float distance;
  std::uint32_t node;
};

bool farther(const Branch& a, const Branch& b) {
  return a.distance != b.distance ? a.distance > b.distance : a.node > b.node;
}

}  // namespace

/// A perfect binary tree over the rows. Node 1 is the root, node n has children 2n (below its median) and
/// 2n + 1.
class PcaTree {
 public:
  PcaTree(const SoftmaxLayer& layer, std::size_t depth) : depth_(depth) {
    while ((std::size_t{1} << depth_) > layer.vocab()) --depth_;
    const Eigen::MatrixXf lifted = lifted_rows(layer);
    const Eigen::RowVectorXf mean = lifted.colwise().mean();
    const Eigen::MatrixXf centred = lifted.rowwise() - mean;
    const Eigen::MatrixXd covariance = (centred.transpose() * centred).cast<double>();
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(covariance);
    const Eigen::MatrixXf components =
        eigen.eigenvectors()
            .rowwise()
            .reverse()
            .leftCols(std::min<Eigen::Index>(static_cast<Eigen::Index>(depth_), lifted.cols()))
            .cast<float>();
    depth_ = static_cast<std::size_t>(components.cols());
    components_ = lifted_directions(components);

    Nodes nodes;
    nodes.medians.assign(leaves(), 0.0F);
    nodes.starts.assign(2 * leaves() + 1, 0);
    nodes.ids.resize(layer.vocab());
    std::iota(nodes.ids.begin(), nodes.ids.end(), 0);
    split(lifted * components, 1, 0, 0, nodes.ids.size(), nodes);
    nodes.starts[2 * leaves()] = static_cast<std::uint32_t>(nodes.ids.size());
    medians_ = StoredArray<float>::own(std::move(nodes.medians));
    starts_ = StoredArray<std::uint32_t>::own(std::move(nodes.starts));
    ids_ = StoredArray<TokenId>::own(std::move(nodes.ids));
  }

  /// Of a depth that is known to be possible.
  PcaTree(const IndexReader& in, std::size_t depth)
      : depth_(depth),
        components_(in.floats("components", {depth, in.dim()}), in.dim(),
                    in.floats("components.offsets", {depth})),
        medians_(in.floats("medians", {leaves()})),
        starts_(in.array<std::uint32_t>("starts", {2 * leaves() + 1})),
        ids_(in.distinct_tokens("ids", {in.vocab()})) {
    in.check_offsets("starts", starts_.span(), ids_.size());
  }

  void save(IndexWriter& out) const {
    out.array("components", {components_.count(), components_.dim()}, components_.weights());
    out.array("components.offsets", {components_.count()}, components_.biases());
    out.array("medians", {medians_.size()}, medians_);
    out.array("starts", {starts_.size()}, starts_);
    out.array("ids", {ids_.size()}, ids_);
  }

  std::size_t vocab() const { return ids_.size(); }
  std::size_t depth() const { return depth_; }
  std::size_t leaves() const { return std::size_t{1} << depth_; }
  kernels::Rows components() const { return components_.rows(); }
  bool is_leaf(std::uint32_t node) const { return node >= leaves(); }
  float median(std::uint32_t node) const { return medians_[node]; }

  /// The tokens of a leaf, ascending.
  std::span<const TokenId> tokens(std::uint32_t leaf) const {
    return ids_.span().subspan(starts_[leaf], starts_[leaf + 1] - starts_[leaf]);
  }

  std::size_t bytes() const {
    return components().bytes(depth_) + medians_.size() * sizeof(float) +
           starts_.size() * sizeof(starts_[0]) + ids_.size() * sizeof(TokenId);
  }

 private:
  /// The tree while it grows.
  struct Nodes {
    std::vector<float> medians;
    std::vector<std::uint32_t> starts;
    std::vector<TokenId> ids;
  };

  void split(const Eigen::MatrixXf& projections, std::uint32_t node, Eigen::Index level, std::size_t first,
             std::size_t last, Nodes& nodes) const {
    const auto begin = nodes.ids.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = nodes.ids.begin() + static_cast<std::ptrdiff_t>(last);
    if (is_leaf(node)) {
      std::sort(begin, end);
      nodes.starts[node] = static_cast<std::uint32_t>(first);
      return;
    }
    const std::size_t middle = first + (last - first) / 2;
    const auto at = nodes.ids.begin() + static_cast<std::ptrdiff_t>(middle);
    std::nth_element(begin, at, end, [&](TokenId a, TokenId b) {
      const float of_a = projections(a, level);
      const float of_b = projections(b, level);
      return of_a != of_b ? of_a < of_b : a < b;
    });
    nodes.medians[node] = projections(*at, level);
    split(projections, 2 * node, level + 1, first, middle, nodes);
    split(projections, 2 * node + 1, level + 1, middle, last, nodes);
  }

  std::size_t depth_;
  StoredRows components_;              ///< [depth]
  StoredArray<float> medians_;         ///< [2^depth], of inner nodes
  StoredArray<std::uint32_t> starts_;  ///< [2·2^depth + 1], of leaves; before them zeros
  StoredArray<TokenId> ids_;           ///< [V], leaf after leaf
};

Candidates PcaMipsScreener::screen(const Query& query, Workspace& workspace) const {
  Candidates candidates;
  const std::size_t usual = leaves_ != 0 ? leaves_ : tree_->depth() + 1;
  const std::size_t wanted = query.effort != 0 ? query.effort : usual;
  if (wanted >= tree_->leaves()) {
    candidates.everything = true;
    return candidates;
  }
  const kernels::Rows components = tree_->components();
  auto* const projections = workspace.screen[0].get<float>(components.count);
  kernels::active().scan(components, 0, components.count, query.h, projections);

  auto* const heap = workspace.screen[1].get<Branch>(wanted * tree_->depth() + 1);
  auto* const ids = workspace.candidates.get<TokenId>(tree_->vocab());
  std::size_t found = 0;
  heap[0] = {0.0F, 1};
  std::size_t size = 1;
  for (std::size_t visited = 0; visited < wanted; ++visited) {
    std::pop_heap(heap, heap + size, farther);
    Branch branch = heap[--size];
    for (std::size_t level = static_cast<std::size_t>(std::bit_width(branch.node)) - 1;
         !tree_->is_leaf(branch.node); ++level) {
      const float side = projections[level] - tree_->median(branch.node);
      const std::uint32_t above = side >= 0.0F ? 1 : 0;
      heap[size++] = {branch.distance + side * side, 2 * branch.node + (1 - above)};
      std::push_heap(heap, heap + size, farther);
      branch.node = 2 * branch.node + above;
    }
    const std::span<const TokenId> tokens = tree_->tokens(branch.node);
    std::copy(tokens.begin(), tokens.end(), ids + found);
    found += tokens.size();
  }
  candidates.ids = {ids, found};
  candidates.screened = wanted;
  candidates.bytes_read =
      components.bytes(components.count) + wanted * tree_->depth() * sizeof(float) + found * sizeof(TokenId);
  return candidates;
}

std::size_t PcaMipsScreener::index_bytes() const {
  return tree_->bytes();
}

void PcaMipsScreener::save(IndexWriter& out) const {
  out.kind(kName);
  out.option("depth", tree_->depth());
  out.option("leaves", leaves_);
  tree_->save(out);
}

std::unique_ptr<PcaMips> PcaMips::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<PcaMips> PcaMips::load(const IndexReader& in) {
  PcaMipsOptions options;
  in.option("depth", options.depth);
  in.option("leaves", options.leaves);
  in.check([&] { check_depth(options.depth); });
  auto tree = std::make_shared<const PcaTree>(in, options.depth);
  return std::unique_ptr<PcaMips>(new PcaMips(in.layer(), PcaMipsScreener(std::move(tree), options.leaves)));
}

std::unique_ptr<PcaMips> PcaMips::build(SoftmaxLayer layer, const PcaMipsOptions& options) {
  check_depth(options.depth);
  auto tree = std::make_shared<const PcaTree>(layer, options.depth);
  return std::unique_ptr<PcaMips>(
      new PcaMips(std::move(layer), PcaMipsScreener(std::move(tree), options.leaves)));
}

}  // namespace topksoftmax
