// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/adaptive/adaptive_softmax.hpp"
#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/learning/outside_sample.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/numeric/quantile.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The masses of the head and the tiers in some contexts, and which of them a query without options scores.
class TierSample {
 public:
  /// Measures at most `count` of the contexts, evenly spaced ones. Cost: count·V·d multiply-adds, count·V
  /// exponentials and count queries of the screener, on the threads of the executor.
  TierSample(const SoftmaxLayer& layer, std::shared_ptr<const AdaptiveTiers> tiers, const Contexts& contexts,
             std::size_t count, const StepProgress& report, const Executor& executor)
      : tiers_(std::move(tiers)), screener_(layer, tiers_), contexts_(evenly_spaced(contexts, count)) {
    masses_.resize(contexts_.rows(), static_cast<Eigen::Index>(parts()));
    scored_.resize(contexts_.rows(), static_cast<Eigen::Index>(parts()));
    for_each_scored(
        layer, contexts_, report, executor,
        [this](std::size_t i, const float* logits, Workspace& workspace) { measure(i, logits, workspace); });
  }

  std::size_t size() const { return static_cast<std::size_t>(contexts_.rows()); }
  const RowMajorMatrix& contexts() const { return contexts_; }
  const float* context(std::size_t i) const { return contexts_.row(static_cast<Eigen::Index>(i)).data(); }
  bool usable(std::size_t i) const { return masses_.row(static_cast<Eigen::Index>(i)).allFinite(); }

  double tier_mass(std::size_t i, std::size_t t) const { return mass(i, t + 1); }
  bool scores(std::size_t i, std::size_t t) const { return is_scored(i, t + 1); }

  /// log Σ exp(logit) over all tokens but those of a tier.
  double but_for(std::size_t i, std::size_t t) const {
    return sum(i, [t](std::size_t part) { return part != t + 1; });
  }
  /// … over the tokens scored, and over the others.
  double inside(std::size_t i) const {
    return sum(i, [&](std::size_t part) { return is_scored(i, part); });
  }
  double outside(std::size_t i) const {
    return sum(i, [&](std::size_t part) { return !is_scored(i, part); });
  }

 private:
  /// The head, and behind it the tiers.
  std::size_t parts() const { return tiers_->size() + 1; }

  double mass(std::size_t i, std::size_t part) const {
    return masses_(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(part));
  }
  bool is_scored(std::size_t i, std::size_t part) const {
    return scored_(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(part)) != 0;
  }

  template <class Counts>
  double sum(std::size_t i, const Counts& counts) const {
    double total = -std::numeric_limits<double>::infinity();
    for (std::size_t part = 0; part < parts(); ++part) {
      if (counts(part)) total = kernels::log_add_exp(total, mass(i, part));
    }
    return total;
  }

  void measure(std::size_t i, const float* logits, Workspace& workspace) {
    const auto row = static_cast<Eigen::Index>(i);
    Query query;
    query.h = context(i);
    const Candidates found = screener_.screen(query, workspace);
    std::vector<float> of_part;
    std::size_t met = 0;
    for (std::size_t part = 0; part < parts(); ++part) {
      const std::span<const TokenId> tokens = part == 0 ? tiers_->head() : tiers_->tier(part - 1);
      of_part.clear();
      for (const TokenId id : tokens) of_part.push_back(logits[static_cast<std::size_t>(id)]);
      const auto at = static_cast<Eigen::Index>(part);
      masses_(row, at) = kernels::log_sum_exp(of_part.data(), of_part.size());
      // Candidates come in the order of their tiers, each of them whole.
      const bool is_next = met < found.ids.size() && found.ids[met] == tokens.front();
      scored_(row, at) = found.everything || is_next ? 1 : 0;
      if (is_next) met += tokens.size();
    }
  }

  std::shared_ptr<const AdaptiveTiers> tiers_;
  AdaptiveSoftmaxScreener screener_;
  RowMajorMatrix contexts_;                                             ///< [n×d]
  Eigen::MatrixXd masses_;                                              ///< [n×(1 + tiers)]
  Eigen::Array<unsigned char, Eigen::Dynamic, Eigen::Dynamic> scored_;  ///< [n×(1 + tiers)]
};

/// Fits the mass of each tier to a sample. The error is that of log Z in answers to queries without options
/// that leave tiers out, on contexts that were held out. Nothing where the sample is too small.
inline std::optional<OutsideMass> fit_tier_masses(const TierSample& sample, std::size_t tiers,
                                                  const Executor& executor) {
  OutsideSample one(sample.contexts());
  for (std::size_t i = 0; i < sample.size(); ++i) {
    if (sample.usable(i)) one.groups[i] = 0;
  }
  std::vector<StoredRows> models;
  for (std::size_t t = 0; t < tiers; ++t) {
    for (std::size_t i = 0; i < sample.size(); ++i) {
      one.inside[i] = sample.but_for(i, t);
      one.outside[i] = sample.tier_mass(i, t);
    }
    const std::optional<OutsideMass> fitted = fit_outside_mass(one, 1, executor);
    if (!fitted) return std::nullopt;
    models.push_back(fitted->models());
  }
  OutsideMass::Learned learned = {.models = stacked(models),
                                  .error = {},
                                  .most = -std::numeric_limits<double>::infinity(),
                                  .sample = sample.size()};

  for (std::size_t i = 0; i < sample.size(); ++i) {
    one.inside[i] = sample.inside(i);
    one.outside[i] = sample.outside(i);
    if (!std::isfinite(one.outside[i])) one.groups[i] = Candidates::no_group;  // it leaves nothing out
  }
  const OutsideSplit split(one);
  for (const auto& which : {split.fitted, split.validated}) {
    for (const std::size_t i : which) learned.most = std::max(learned.most, one.outside[i] - one.inside[i]);
  }
  if (split.held_out.empty() || !std::isfinite(learned.most)) return std::nullopt;
  const OutsideMass masses(learned);
  std::vector<double> errors;
  for (const std::size_t i : split.held_out) {
    double found = -std::numeric_limits<double>::infinity();
    for (std::size_t t = 0; t < tiers; ++t) {
      if (!sample.scores(i, t)) found = kernels::log_add_exp(found, masses.log_mass(t, sample.context(i)));
    }
    errors.push_back(log_z_error(one, i, found, learned.most));
  }
  learned.error = {.median = quantile(errors, 0.5), .p99 = quantile(errors, 0.99)};
  return OutsideMass(std::move(learned));
}

/// Learns the mass of each tier from at most `count` of the contexts; 0: nothing. Cost: that of a TierSample,
/// and for the regressions 2·count·tiers·d² multiply-adds.
inline std::optional<OutsideMass> learn_tier_masses(const SoftmaxLayer& layer,
                                                    const std::shared_ptr<const AdaptiveTiers>& tiers,
                                                    const Contexts& contexts, std::size_t count,
                                                    const StepProgress& report, const Executor& executor) {
  if (tiers->size() == 0 || std::min(count, contexts.count) < kFewestSampled) return std::nullopt;
  return fit_tier_masses(TierSample(layer, tiers, contexts, count, report, executor), tiers->size(),
                         executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
