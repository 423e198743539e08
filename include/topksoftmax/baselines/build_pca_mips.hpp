// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/baselines/pca_mips.hpp"
#include "topksoftmax/config.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "topksoftmax/baselines/lifted_rows.hpp"
#include "topksoftmax/baselines/pca_mips.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/numeric/products.hpp"
#include "topksoftmax/numeric/symmetric_eigen.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Rows less their mean, all times one power of two: the largest value of the rows is then between 1 and 2,
/// so that squares stay within the floats, and the components are what they were.
inline Eigen::MatrixXf centred_rows(const Eigen::MatrixXf& rows) {
  const float peak = rows.cwiseAbs().maxCoeff();
  const int exponent = peak > 0.0F ? std::ilogb(peak) : 0;
  const auto scaled = [exponent](float value) { return std::ldexp(value, -exponent); };
  Eigen::MatrixXf centred = rows.unaryExpr(scaled);
  const Eigen::RowVectorXf mean = centred.colwise().mean();
  centred.rowwise() -= mean;
  return centred;
}

/// The tree while it grows.
struct PcaTree::Nodes {
  std::vector<float> medians;
  std::vector<std::uint32_t> starts;
  std::vector<TokenId> ids;
};

TOPKSOFTMAX_BUILD_INLINE void PcaTree::split(const Eigen::MatrixXf& projections, std::uint32_t node,
                                             Eigen::Index level, std::size_t first, std::size_t last,
                                             Nodes& nodes) const {
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

TOPKSOFTMAX_BUILD_INLINE PcaTree::PcaTree(const SoftmaxLayer& layer, std::size_t depth,
                                          const Executor& executor)
    : depth_(depth) {
  while ((std::size_t{1} << depth_) > layer.vocab()) --depth_;
  const Eigen::MatrixXf lifted = lifted_rows(layer);
  const Eigen::MatrixXd covariance = gram(centred_rows(lifted), executor).cast<double>();
  const Eigen::MatrixXf components =
      symmetric_eigen(covariance, executor)
          .vectors.leftCols(std::min<Eigen::Index>(static_cast<Eigen::Index>(depth_), lifted.cols()))
          .cast<float>();
  depth_ = static_cast<std::size_t>(components.cols());
  components_ = lifted_directions(components, layer.has_bias());

  Nodes nodes;
  nodes.medians.assign(leaves(), 0.0F);
  nodes.starts.assign(2 * leaves() + 1, 0);
  nodes.ids.resize(layer.vocab());
  std::iota(nodes.ids.begin(), nodes.ids.end(), 0);
  split(product(lifted, components, executor), 1, 0, 0, nodes.ids.size(), nodes);
  nodes.starts[2 * leaves()] = static_cast<std::uint32_t>(nodes.ids.size());
  medians_ = StoredArray<float>::own(std::move(nodes.medians));
  tokens_ = {StoredArray<std::uint32_t>::own(std::move(nodes.starts)),
             StoredArray<TokenId>::own(std::move(nodes.ids))};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<PcaMips> PcaMips::build(SoftmaxLayer layer, const Contexts& contexts,
                                                                 const PcaMipsOptions& options,
                                                                 const Executor& executor) {
  check_options("pca-mips", options);
  detail::check_contexts_if_any(layer, contexts, PcaMips::kind);
  detail::report_indexing(options.progress);
  auto tree = std::make_shared<const detail::PcaTree>(layer, options.depth, executor);
  return detail::with_learned_outside<PcaMips>(
      std::move(layer), PcaMipsScreener(std::move(tree), options.leaves), 1, contexts, options.outside_sample,
      executor, detail::learning_outside(options.progress, detail::kIndexed));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<PcaMips> PcaMips::build(SoftmaxLayer layer,
                                                                 const ConstRows& contexts,
                                                                 const PcaMipsOptions& options,
                                                                 const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<PcaMips> PcaMips::build(SoftmaxLayer layer,
                                                                 const PcaMipsOptions& options,
                                                                 const Executor& executor) {
  return build(std::move(layer), Contexts(), options, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
