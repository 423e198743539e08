// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/adaptive/adaptive_softmax.hpp"
#include "topksoftmax/config.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "topksoftmax/adaptive/adaptive_softmax.hpp"
#include "topksoftmax/adaptive/learn_tier_masses.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/outside_sample.hpp"
#include "topksoftmax/numeric/linear_algebra.hpp"
#include "topksoftmax/numeric/products.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/frequency_order.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

struct AdaptiveTiers::Gates {
  RowMajorMatrix weights;    ///< [tiers×d]
  Eigen::VectorXf offsets;   ///< [tiers]
  std::vector<float> reach;  ///< [tiers]
};

/// The largest product of each tier with a context, from those of all tokens.
TOPKSOFTMAX_BUILD_INLINE Eigen::VectorXd AdaptiveTiers::largest_of_tiers(const float* products) const {
  Eigen::VectorXd largest(static_cast<Eigen::Index>(size()));
  for (std::size_t t = 0; t < size(); ++t) {
    float most = -std::numeric_limits<float>::infinity();
    for (const TokenId id : tier(t)) most = std::max(most, products[id]);
    largest[static_cast<Eigen::Index>(t)] = static_cast<double>(most);
  }
  return largest;
}

TOPKSOFTMAX_BUILD_INLINE void AdaptiveTiers::learn_gates(const SoftmaxLayer& layer, const Contexts& contexts,
                                                         const Executor& executor, Gates& out) const {
  const RowMajorMatrix sample = evenly_spaced(contexts, options_.context_sample);
  const Eigen::Index count = sample.rows();
  const Eigen::Index dim = sample.cols();
  Eigen::MatrixXd H(count, dim + 1);
  H << sample.cast<double>(), Eigen::VectorXd::Ones(count);
  Eigen::MatrixXd largest(count, static_cast<Eigen::Index>(size()));
  const auto measure = [&](std::size_t i, const float* products, Workspace&) {
    largest.row(static_cast<Eigen::Index>(i)) = largest_of_tiers(products);
  };
  for_each_scored(layer.with({}), sample, {}, executor, measure);
  Eigen::MatrixXd normal = gram(H, executor);
  normal.diagonal().array() += 1e-4 * normal.trace() / static_cast<double>(dim + 1);
  const Eigen::MatrixXd gates = normal.ldlt().solve(transposed_times(H, largest));  // [(d + 1)×tiers]
  const Eigen::MatrixXd missing = largest - times(H, gates);
  for (Eigen::Index t = 0; t < missing.cols(); ++t) {
    Eigen::VectorXd sorted = missing.col(t);
    std::sort(sorted.begin(), sorted.end());
    const auto rank = static_cast<Eigen::Index>(options_.caution * static_cast<double>(count - 1));
    out.weights.row(t) = gates.col(t).head(dim).cast<float>();
    out.offsets[t] = static_cast<float>(gates(dim, t) + sorted[rank]);
  }
}

/// Gates that no product of their tier is above, whatever is rounded. A row's float32 product x with h
/// exceeds the gate's, y, by no more than ‖h‖ times the row's distance from the gate's vector and the
/// roundings of both products; adding a bias rounds in order, so x + b ≤ x + the largest b, and its own
/// rounding is at most one of each of x, y and that bias. One more is for rows of int8, which copy_row()
/// rounds.
TOPKSOFTMAX_BUILD_INLINE void AdaptiveTiers::bound_gates(const SoftmaxLayer& layer, Gates& out) const {
  const double share = roundings(layer.dim() + 4);
  Eigen::VectorXf row(static_cast<Eigen::Index>(layer.dim()));
  for (std::size_t t = 0; t < size(); ++t) {
    const auto at = static_cast<Eigen::Index>(t);
    Eigen::VectorXd mean = Eigen::VectorXd::Zero(row.size());
    float bias = -std::numeric_limits<float>::infinity();
    for (const TokenId id : tier(t)) {
      layer.copy_row(static_cast<std::size_t>(id), row.data());
      mean += row.cast<double>();
      bias = std::max(bias, layer.has_bias() ? layer.rows().bias[id] : 0.0F);
    }
    mean /= static_cast<double>(tier(t).size());
    out.weights.row(at) = mean.cast<float>();
    const Eigen::VectorXd gate = out.weights.row(at).cast<double>();
    double farthest = 0.0;
    double longest = 0.0;
    for (const TokenId id : tier(t)) {
      layer.copy_row(static_cast<std::size_t>(id), row.data());
      farthest = std::max(farthest, (row.cast<double>() - gate).norm());
      longest = std::max(longest, row.cast<double>().norm());
    }
    out.reach[t] = up((farthest + share * (gate.norm() + longest)) * kOutward);
    const auto top = static_cast<double>(bias);
    out.offsets[at] = up(top + roundings(4) * std::abs(top));
  }
}

TOPKSOFTMAX_BUILD_INLINE AdaptiveTiers::AdaptiveTiers(const SoftmaxLayer& layer,
                                                      const AdaptiveSoftmaxOptions& options,
                                                      const Contexts& contexts, const Executor& executor)
    : options_(chosen_adaptive(options, layer)) {
  options_.counts.clear();  // the order is all that is kept of them
  options_.progress = {};   // whom it tells may not live as long
  const std::size_t head = *options_.head;
  const std::size_t tail = layer.vocab() - head;
  const std::size_t tiers = tiers_of(layer.vocab());
  std::vector<std::uint64_t> starts = {head};
  for (std::size_t t = 1; t <= tiers; ++t) starts.push_back(head + t * tail / tiers);
  tail_ = {StoredArray<std::uint64_t>::own(std::move(starts)),
           StoredArray<TokenId>::own(frequency_order(layer, options.counts, AdaptiveSoftmax::kind))};
  Gates gates;
  gates.weights.resize(static_cast<Eigen::Index>(size()), static_cast<Eigen::Index>(layer.dim()));
  gates.offsets.resize(static_cast<Eigen::Index>(size()));
  gates.reach.assign(size(), 0.0F);
  if (size() > 0 && contexts.count > 0) {
    learn_gates(layer, contexts, executor, gates);
  } else if (size() > 0) {
    bound_gates(layer, gates);
  }
  gates_ = StoredRows(gates.weights, std::move(gates.offsets));
  reach_ = StoredArray<float>::own(std::move(gates.reach));
  longest_ = longest_row();
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<AdaptiveSoftmax> AdaptiveSoftmax::build(
    SoftmaxLayer layer, const Contexts& contexts, const AdaptiveSoftmaxOptions& options,
    const Executor& executor) {
  detail::check_contexts_if_any(layer, contexts, AdaptiveSoftmax::kind);
  detail::report_indexing(options.progress);
  auto tiers = std::make_shared<detail::AdaptiveTiers>(layer, options, contexts, executor);
  const StepProgress report = detail::learning_outside(options.progress, detail::kIndexed);
  tiers->set_masses(
      detail::learn_tier_masses(layer, tiers, contexts, options.outside_sample, report, executor));
  if (report) report(1.0);
  return std::unique_ptr<AdaptiveSoftmax>(
      new AdaptiveSoftmax(layer, AdaptiveSoftmaxScreener(layer, std::move(tiers))));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<AdaptiveSoftmax> AdaptiveSoftmax::build(
    SoftmaxLayer layer, const ConstRows& contexts, const AdaptiveSoftmaxOptions& options,
    const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<AdaptiveSoftmax> AdaptiveSoftmax::build(
    SoftmaxLayer layer, const AdaptiveSoftmaxOptions& options) {
  return build(std::move(layer), Contexts(), options, SerialExecutor());
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
