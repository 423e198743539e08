// SPDX-License-Identifier: Apache-2.0
#include "bounds/boxes.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/screened_softmax.hpp"

namespace topksoftmax::bench {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr std::size_t kBoxRows = 16;

/// S/tr S, and a little in every direction.
MatrixXd lifted(MatrixXd S) {
  const double trace = S.trace();
  if (trace > 0.0) S /= trace;
  S.diagonal().array() += 1e-3 / static_cast<double>(S.rows());
  return S;
}

/// Contexts that the rotation is learned from, evenly spaced ones.
constexpr Index kSample = 20000;

/// R [d×d] for which h' = Rh and w' = R⁻ᵀw have equal, diagonal second moments, the largest first.
MatrixXd balanced_rotation(const RowMajorMatrix& W, const RowMajorMatrix& contexts) {
  MatrixXd moment = MatrixXd::Identity(W.cols(), W.cols());
  if (contexts.rows() > 0) {
    const Index step = std::max<Index>(contexts.rows() / kSample, 1);
    const RowMajorMatrix sampled = contexts(Eigen::seq(0, Eigen::last, step), Eigen::all);
    moment = (sampled.transpose() * sampled).cast<double>();
  }
  const MatrixXd L = lifted(moment).llt().matrixL();
  const MatrixXd gram = lifted((W.transpose() * W).cast<double>());
  const Eigen::SelfAdjointEigenSolver<MatrixXd> joint(L.transpose() * gram * L);
  const VectorXd roots = joint.eigenvalues().reverse().array().pow(0.25);
  const MatrixXd U = joint.eigenvectors().rowwise().reverse();
  return roots.asDiagonal() * U.transpose() * L.inverse();
}

/// Puts similar rows next to each other, in blocks of kBoxRows.
void order_by_halves(const MatrixXd& points, std::span<TokenId> tokens) {
  if (tokens.size() <= kBoxRows) return;
  VectorXd sum = VectorXd::Zero(points.cols());
  VectorXd squares = sum;
  for (const TokenId token : tokens) {
    sum += points.row(token).transpose();
    squares += points.row(token).transpose().cwiseAbs2();
  }
  Index widest = 0;
  (squares - sum.cwiseAbs2() / static_cast<double>(tokens.size())).maxCoeff(&widest);
  const std::size_t blocks = (tokens.size() + kBoxRows - 1) / kBoxRows;
  const std::size_t half = blocks / 2 * kBoxRows;
  std::nth_element(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(half), tokens.end(),
                   [&points, widest](TokenId a, TokenId b) { return points(a, widest) < points(b, widest); });
  order_by_halves(points, tokens.first(half));
  order_by_halves(points, tokens.subspan(half));
}

RowGroups blocks_of_similar(const MatrixXd& points) {
  RowGroups groups;
  groups.tokens.resize(static_cast<std::size_t>(points.rows()));
  std::iota(groups.tokens.begin(), groups.tokens.end(), 0);
  order_by_halves(points, groups.tokens);
  for (std::size_t first = 0; first < groups.tokens.size(); first += kBoxRows) groups.begin.push_back(first);
  groups.begin.push_back(groups.tokens.size());
  return groups;
}

}  // namespace

BoxScreener::BoxScreener(const SoftmaxLayer& layer, const RowMajorMatrix& contexts, const BoxOptions& options)
    : layer_(layer),
      prefix_(std::clamp<std::size_t>(options.prefix, 1, layer.dim())),
      rotation_(layer),
      boxes_(layer),
      prefixes_(layer) {
  const RowMajorMatrix W = layer.weights();
  const Eigen::VectorXf b = layer.biases();
  const RowMajorMatrix rotation = balanced_rotation(W, contexts).cast<float>();
  const MatrixXd R = rotation.cast<double>();
  const MatrixXd rotated = R.transpose().partialPivLu().solve(W.cast<double>().transpose()).transpose();
  const auto p = static_cast<Index>(prefix_);
  const VectorXd tails = rotated.rightCols(rotated.cols() - p).rowwise().norm();
  groups_ = blocks_of_similar(rotated.leftCols(p));

  RowMajorMatrix prefixes(W.rows(), p + 2);
  Eigen::VectorXf biases(W.rows());
  for (Index i = 0; i < W.rows(); ++i) {
    const TokenId token = groups_.tokens[static_cast<std::size_t>(i)];
    prefixes.row(i).head(p) = rotated.row(token).head(p).cast<float>();
    prefixes(i, p) = outwards(tails[token]);
    prefixes(i, p + 1) = 0.0F;
    biases[i] = b[token];
  }
  RowMajorMatrix boxes(static_cast<Index>(groups_.count()), 2 * p + 2);
  Eigen::VectorXf tops(boxes.rows());
  for (Index g = 0; g < boxes.rows(); ++g) {
    const auto first = static_cast<Index>(groups_.begin[static_cast<std::size_t>(g)]);
    const auto size = static_cast<Index>(groups_.size(static_cast<std::size_t>(g)));
    const MatrixXd members = prefixes.middleRows(first, size).cast<double>();
    const VectorXd low = members.colwise().minCoeff();
    const VectorXd high = members.colwise().maxCoeff();
    boxes.row(g).head(p) = (0.5 * (low + high)).head(p).transpose().cast<float>();
    boxes(g, p) = static_cast<float>(high[p]);
    boxes(g, p + 1) = 0.0F;
    const VectorXd center = boxes.row(g).head(p).transpose().cast<double>();
    for (Index j = 0; j < p; ++j) {
      boxes(g, p + 2 + j) = outwards(std::max(high[j] - center[j], center[j] - low[j]));
    }
    tops[g] = biases.segment(first, size).maxCoeff();
  }
  const double row_norm = W.cast<double>().rowwise().norm().maxCoeff();
  const double bound_norm = R.norm() * std::max(rotated.rowwise().norm().maxCoeff(),
                                                boxes.cast<double>().rowwise().norm().maxCoeff());
  largest_ = std::max(row_norm, bound_norm);
  const auto width = static_cast<std::size_t>(boxes.cols());
  const float slack = outwards(rounding_slack(layer.dim(), width, bound_norm, row_norm));
  prefixes.col(p + 1).setConstant(slack);
  boxes.col(p + 1).setConstant(slack);
  const float bias_slack =
      outwards(rounding_slack(layer.dim(), width, 1.0, 1.0) * static_cast<double>(b.cwiseAbs().maxCoeff()));
  biases.array() += bias_slack;
  tops.array() += bias_slack;
  rotation_ = SoftmaxLayer::own(rotation);
  boxes_ = SoftmaxLayer::own(std::move(boxes), std::move(tops));
  prefixes_ = SoftmaxLayer::own(std::move(prefixes), std::move(biases));
}

Candidates BoxScreener::screen(const Query& query, Workspace& workspace) const {
  const kernels::Implementation& kernel = kernels::active();
  const std::size_t dim = layer_.dim();
  Candidates candidates;
  const double length = norm_of(query.h, dim);
  if (!query.edits.empty() || !(length * largest_ < kLargestLogit)) {
    candidates.everything = true;
    return candidates;
  }
  auto* const rotated = workspace.screen[0].get<float>(dim + 2 * prefix_ + 2);
  float* const x = rotated + dim;  // coordinates, tail, length, magnitudes
  kernel.scan(rotation_.rows(), 0, dim, query.h, rotated);
  std::copy_n(rotated, prefix_, x);
  x[prefix_] = outwards(norm_of(rotated + prefix_, dim - prefix_));
  x[prefix_ + 1] = outwards(length);
  for (std::size_t j = 0; j < prefix_; ++j) x[prefix_ + 2 + j] = std::abs(rotated[j]);
  candidates.screened = groups_.count();
  candidates.bytes_read = rotation_.bytes() + boxes_.bytes();
  const std::span<GroupBound> bounds = bound_groups(boxes_, x, workspace);

  auto* const ids = workspace.candidates.get<TokenId>(layer_.vocab());
  auto* const logits = workspace.logits.get<float>(layer_.vocab());
  kernels::TopKHeap heap(workspace.heap.get<ScoredToken>(query.k), query.k);
  std::size_t scored = 0;
  visit_best_first(bounds, [&](std::size_t group) {
    const std::span<const TokenId> tokens = groups_.of(group);
    float uppers[kBoxRows];
    kernel.scan(prefixes_.rows(), groups_.begin[group], tokens.size(), x, uppers);
    candidates.screened += tokens.size();
    candidates.bytes_read += prefixes_.rows().bytes(tokens.size());
    const float threshold = heap.threshold();
    std::size_t kept = scored;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ids[kept] = tokens[i];
      kept += uppers[i] >= threshold ? 1 : 0;
    }
    kernel.scan_gathered(layer_.rows(), ids + scored, kept - scored, query.h, logits + scored);
    kernel.select(logits + scored, ids + scored, kept - scored, heap);
    scored = kept;
    return heap.threshold();
  });
  candidates.ids = {ids, scored};
  candidates.logits = logits;
  candidates.certified = true;
  return candidates;
}

Backend box_bounds() {
  return make_backend<BoxOptions>(
      "boxes", "Blocks of 16 similar rows in boxes of balanced coordinates, the highest bound first",
      {field("prefix", &BoxOptions::prefix, "coordinates that boxes and rows are bounded by")},
      [](const Head& head, const BoxOptions& options, const TrainingProgress&) {
        return std::make_unique<ScreenedSoftmax<BoxScreener>>(head.layer,
                                                              BoxScreener(head.layer, head.train, options));
      });
}

}  // namespace topksoftmax::bench
