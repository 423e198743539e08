// SPDX-License-Identifier: Apache-2.0
#include "bounds/balls.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "bounds/rounding.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/learning/spherical_kmeans.hpp"
#include "topksoftmax/screened_softmax.hpp"

namespace topksoftmax::bench {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;

/// What a BallScreener works in.
struct BallScratch {
  ScratchBuffer context;
  ScratchBuffer uppers;  ///< of all groups
  ScratchBuffer bounds;  ///< the same, to be sorted
  ScratchBuffer ids;
  ScratchBuffer logits;
  ScratchBuffer best;
};

/// An upper bound of every logit of a group.
struct GroupBound {
  float upper;
  std::uint32_t group;
};

/// Bounds of all groups, one product each: coefficients·x + bias.
std::span<GroupBound> bound_groups(const SoftmaxLayer& coefficients, const float* x, BallScratch& scratch) {
  const std::size_t groups = coefficients.vocab();
  auto* const uppers = scratch.uppers.get<float>(groups);
  auto* const bounds = scratch.bounds.get<GroupBound>(groups);
  kernels::scan(coefficients.rows(), 0, groups, x, uppers);
  for (std::size_t g = 0; g < groups; ++g) bounds[g] = {uppers[g], static_cast<std::uint32_t>(g)};
  return {bounds, groups};
}

/// Calls visit(group) for one group after the other, the highest bound first, until all that is left is below
/// the threshold that the last call returned. The bounds are reordered.
template <class Visit>
void visit_best_first(std::span<GroupBound> bounds, const Visit& visit) {
  const auto lower = [](const GroupBound& a, const GroupBound& b) { return a.upper < b.upper; };
  std::make_heap(bounds.begin(), bounds.end(), lower);
  float threshold = -std::numeric_limits<float>::infinity();
  for (auto end = bounds.end(); end != bounds.begin() && bounds.front().upper >= threshold; --end) {
    std::pop_heap(bounds.begin(), end, lower);
    threshold = visit(std::prev(end)->group);
  }
}

/// What a bound is too low at the most for a context of length 1, for the roundings of float32: of its own
/// product, over the center and the radius, and of the logit. Norms are the largest of a ball and of a row.
double rounding_slack(std::size_t dim, double ball_norm, double row_norm) {
  const auto terms = [](std::size_t n) { return 2.0 * 0x1p-24 * static_cast<double>(n + 8); };
  return terms(dim + 1) * ball_norm + terms(dim) * row_norm;
}

/// Rows by cluster; clusters that have none are left out.
RowGroups cluster(const RowMajorMatrix& W, std::size_t clusters) {
  const Contexts rows = Contexts::of(W);
  const std::vector<float> centers = spherical_kmeans(rows, {.clusters = clusters});
  const std::vector<std::int32_t> cluster_of = assign_clusters(rows, centers, clusters);
  std::vector<std::vector<TokenId>> members(clusters);
  for (std::size_t v = 0; v < cluster_of.size(); ++v) {
    members[static_cast<std::size_t>(cluster_of[v])].push_back(static_cast<TokenId>(v));
  }
  RowGroups groups;
  groups.begin.push_back(0);
  for (const std::vector<TokenId>& tokens : members) {
    if (tokens.empty()) continue;
    groups.tokens.insert(groups.tokens.end(), tokens.begin(), tokens.end());
    groups.begin.push_back(groups.tokens.size());
  }
  return groups;
}

RowMajorMatrix gather(const RowMajorMatrix& W, std::span<const TokenId> tokens) {
  RowMajorMatrix rows(static_cast<Index>(tokens.size()), W.cols());
  for (std::size_t i = 0; i < tokens.size(); ++i) rows.row(static_cast<Index>(i)) = W.row(tokens[i]);
  return rows;
}

}  // namespace

BallScreener::BallScreener(const SoftmaxLayer& layer, const BallOptions& options)
    : balls_(layer), ordered_(layer) {
  const RowMajorMatrix W = layer.weights();
  const Eigen::VectorXf b = layer.biases();
  const std::size_t wanted = options.clusters != 0 ? options.clusters : layer.vocab() / 16;
  groups_ = cluster(W, std::clamp<std::size_t>(wanted, 1, layer.vocab()));
  const RowMajorMatrix rows = gather(W, groups_.tokens);
  const Eigen::VectorXf biases = gather(b, groups_.tokens);

  const Index dim = W.cols();
  RowMajorMatrix balls(static_cast<Index>(groups_.count()), dim + 1);
  Eigen::VectorXf tops(balls.rows());
  for (Index g = 0; g < balls.rows(); ++g) {
    const auto first = static_cast<Index>(groups_.begin[static_cast<std::size_t>(g)]);
    const auto size = static_cast<Index>(groups_.size(static_cast<std::size_t>(g)));
    const MatrixXd members = rows.middleRows(first, size).cast<double>();
    balls.row(g).head(dim) = members.colwise().mean().cast<float>();
    const MatrixXd apart = members.rowwise() - balls.row(g).head(dim).cast<double>();
    balls(g, dim) = outwards(apart.rowwise().norm().maxCoeff());
    tops[g] = biases.segment(first, size).maxCoeff();
  }
  const double row_norm = W.cast<double>().rowwise().norm().maxCoeff();
  const double ball_norm = balls.cast<double>().rowwise().norm().maxCoeff();
  largest_ = std::max(row_norm, ball_norm);
  balls.col(dim).array() += outwards(rounding_slack(layer.dim(), ball_norm, row_norm));
  tops.array() +=
      outwards(rounding_slack(layer.dim(), 1.0, 1.0) * static_cast<double>(b.cwiseAbs().maxCoeff()));
  balls_ = SoftmaxLayer::own(std::move(balls), std::move(tops));
  ordered_ = SoftmaxLayer::own(rows, biases);
}

Candidates BallScreener::screen(const Query& query, Workspace& workspace) const {
  const std::size_t dim = ordered_.dim();
  BallScratch& scratch = workspace.scratch<BallScratch>();
  auto* const x = scratch.context.get<float>(dim + 1);
  std::copy_n(query.h, dim, x);
  const double length =
      Eigen::Map<const Eigen::VectorXf>(query.h, static_cast<Index>(dim)).cast<double>().norm();
  x[dim] = outwards(length);
  if (!query.edits.empty() || !(length * largest_ < kLargestLogit)) return Candidates::all();
  Candidates candidates;
  candidates.screened = groups_.count();
  candidates.bytes_read = balls_.bytes();
  const std::span<GroupBound> bounds = bound_groups(balls_, x, scratch);

  auto* const ids = scratch.ids.get<TokenId>(ordered_.vocab());
  auto* const logits = scratch.logits.get<float>(ordered_.vocab());
  kernels::TopKHeap heap(scratch.best.get<ScoredToken>(query.k), query.k);
  std::size_t scored = 0;
  visit_best_first(bounds, [&](std::size_t group) {
    const std::span<const TokenId> tokens = groups_.of(group);
    kernels::scan(ordered_.rows(), groups_.begin[group], tokens.size(), query.h, logits + scored);
    kernels::select(logits + scored, tokens.data(), tokens.size(), heap);
    std::copy(tokens.begin(), tokens.end(), ids + scored);
    scored += tokens.size();
    return heap.threshold();
  });
  candidates.ids = {ids, scored};
  candidates.logits = logits;
  candidates.certified = true;
  return candidates;
}

BackendDescription ball_bounds() {
  return {.name = "balls",
          .kind = {},
          .summary = "Clusters of rows in balls, the highest bound first, after CSV-Decode",
          .traits = {.exact = true, .has_index = false},
          .builder = builder<BallOptions>({}, [](const BuildMaterial& from, const BallOptions& options) {
            return std::make_unique<ScreenedSoftmax<BallScreener>>(from.layer,
                                                                   BallScreener(from.layer, options));
          })};
}

}  // namespace topksoftmax::bench
