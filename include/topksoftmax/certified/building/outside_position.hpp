// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/building/trials.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/reaching_rows.hpp"
#include "topksoftmax/certified/survivors.hpp"
#include "topksoftmax/certified/threshold.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/numeric/quantile.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// OutsideEstimate::position of a context; NaN where there is none between the bounds.
inline double position_of_outside(const SoftmaxLayer& layer, const CertifiedIndex& index,
                                  const Trials& trials, Eigen::Index trial, Workspace& workspace) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Query query;
  query.h = trials.contexts.row(trial).data();
  const ContextBounds& bounds = bound(index, query, workspace);
  if (!bounds.usable) return kNone;
  const LogitTransform& transform = layer.transform();
  const auto threshold = static_cast<float>(transform(trials.thresholds[trial]));
  const BoundedQuery bounded = {layer, index, query, bounds, workspace};
  const Survivors found = survivors(bounded, rows_reaching(bounded, threshold), threshold, index.rows());
  std::vector<float> logits(layer.vocab());
  kernels::scan(layer.rows(), 0, logits.size(), query.h, logits.data());
  for (const TokenId id : found.ids) logits[static_cast<std::size_t>(id)] = kNoThreshold;
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - threshold));
  const double low = std::log(found.outside.low);
  const double position = (std::log(sum) - low) / (std::log(found.outside.high) - low);
  return position >= 0.0 && position <= 1.0 ? position : kNone;  // no bound is 0
}

/// The same in the median over contexts.
inline double typical_position(const SoftmaxLayer& layer, const CertifiedIndex& index, const Trials& trials,
                               const Executor& executor) {
  constexpr std::size_t kTrialsAtOnce = 8;
  std::vector<double> positions(trials.count());
  for_each_part(executor, trials.count(), kTrialsAtOnce, [&](std::size_t first, std::size_t count) {
    Workspace workspace;
    for (std::size_t i = first; i < first + count; ++i) {
      positions[i] = position_of_outside(layer, index, trials, static_cast<Eigen::Index>(i), workspace);
    }
  });
  std::erase_if(positions, [](double position) { return std::isnan(position); });
  if (positions.empty()) return index.outside.position;
  return quantile(std::move(positions), 0.5);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
