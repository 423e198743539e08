// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/reaching_rows.hpp"
#include "topksoftmax/certified/sampled_mass.hpp"
#include "topksoftmax/certified/survivors.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/nucleus.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The layer whose logits are those of `layer`, divided by a temperature; nothing where no transform says so.
inline std::optional<SoftmaxLayer> tempered_layer(const SoftmaxLayer& layer, double temperature) {
  LogitTransform transform = layer.transform();
  transform.scale = static_cast<float>(static_cast<double>(transform.scale) / temperature);
  transform.soft_cap = static_cast<float>(static_cast<double>(transform.soft_cap) / temperature);
  const auto is_usable = [](float x) { return x >= LogitTransform::kLeast && x <= LogitTransform::kMost; };
  if (!is_usable(transform.scale)) return std::nullopt;
  if (layer.transform().soft_cap != 0.0F && !is_usable(transform.soft_cap)) return std::nullopt;
  return layer.with(transform);
}

inline constexpr NucleusPlace kOpenPlace = {.open = true};

/// What the tokens that rank before one weigh, and all others, that one among them:
/// exp((logit − the best one's)/temperature).
class RankedMass {
 public:
  /// `best` is the largest logit.
  RankedMass(const ScoredToken& token, double best, double temperature)
      : token_(token), best_(best), temperature_(temperature) {}

  void add(const ScoredToken& token) {
    const double weight = std::exp(tempered(token.logit, best_, temperature_));
    if (ranks_before(token, token_)) {
      before_ += weight;
    } else {
      low_ += weight;
      high_ += weight;
    }
  }

  /// Adds others, of which Σ exp(logit/temperature − shift) lies within bounds.
  void add(const kernels::SumBounds& sum, double shift) {
    const double unit = std::exp(shift - best_ / temperature_);
    low_ += sum.low * unit;
    high_ += sum.high * unit;
  }

  /// Whether a nucleus of this share has the token: open where it is not sure.
  NucleusPlace place(double share) const {
    const double rounding = kPlaceRounding + kTemperRounding * std::abs(best_ / temperature_);
    const double less = 1.0 - rounding;
    const double more = 1.0 + rounding;
    const bool inside = before_ * more < share * (before_ + low_) * less;
    const bool outside = before_ * less >= share * (before_ + high_) * more;
    if (!inside && !outside) return kOpenPlace;
    const double least = std::log((before_ + low_) * less);
    const double most = std::log((before_ + high_) * more);
    const double middle = best_ / temperature_ + 0.5 * (least + most);
    return {.inside = inside, .log_z = {.log_z = middle, .error = 0.5 * (most - least)}};
  }

 private:
  /// What sums of weights in float32 are off by, and, for each nat, what a temperature in float32 makes of
  /// logits.
  static constexpr double kPlaceRounding = 1e-5;
  static constexpr double kTemperRounding = 0x1p-22;

  ScoredToken token_;
  double best_;
  double temperature_;
  double before_ = 0.0;
  double low_ = 0.0;
  double high_ = 0.0;
};

/// Whether a nucleus has a token, which is allowed and has this logit, where bounds tell: the rows that may
/// rank before it are scored, the others bounded, and ever more of these by all their coordinates. Left open
/// where bounds do not tell.
inline NucleusPlace prove_place(const BoundedQuery& bounded, const ScoredToken& token,
                                const Nucleus& nucleus) {
  // How far below the token's logit rows are bounded by all their coordinates, in nats at the temperature,
  // and of what share of the rows that is worth it.
  constexpr float kDepths[] = {0.0F, 2.0F, 4.0F};
  constexpr std::size_t kShare = 2;
  constexpr double kSlack = 1e-5;
  const std::optional<SoftmaxLayer> layer = tempered_layer(bounded.layer, nucleus.temperature);
  if (!layer || !bounded.bounds.usable) return kOpenPlace;
  Query query = bounded.query;
  query.probabilities = true;  // sums are
  const BoundedQuery at = {*layer, bounded.index, query, bounded.bounds, bounded.workspace};
  const double of_token = static_cast<double>(token.logit) / nucleus.temperature;
  const auto threshold = static_cast<float>(of_token - kSlack * (1.0 + std::abs(of_token)));
  if (!can_rule_out(at, threshold)) return kOpenPlace;

  std::vector<ScoredToken> biased;
  visit_biased(bounded, [&](const ScoredToken& one) { biased.push_back(one); });
  const std::size_t most = bounded.index.rows() / kShare;
  for (const float depth : kDepths) {
    const Survivors found = survivors(at, rows_reaching(at, threshold - depth), threshold, most);
    const std::size_t count = found.ids.size();
    if (count > most) break;
    auto* const logits = bounded.scratch().logits.get<float>(count);
    scan_gathered(bounded.workspace, bounded.layer.rows(), found.ids.data(), count, bounded.query.h, logits);
    float best = std::max(token.logit, kernels::max(logits, count));
    for (const ScoredToken& one : biased) best = std::max(best, one.logit);
    RankedMass mass(token, static_cast<double>(best), nucleus.temperature);
    for (std::size_t i = 0; i < count; ++i) mass.add({logits[i], found.ids[i]});
    for (const ScoredToken& one : biased) mass.add(one);
    mass.add(found.outside, static_cast<double>(threshold));
    const NucleusPlace place = mass.place(nucleus.share);
    if (!place.open) return place;
  }
  return kOpenPlace;
}

/// The same where it may be sampled too: see Nucleus::error. All rows are read where neither tells.
inline NucleusPlace place_in_nucleus(const BoundedQuery& bounded, const ScoredToken& token,
                                     const Nucleus& nucleus) {
  const bool may_be_sampled = nucleus.error > 0.0;
  if (may_be_sampled) {
    const NucleusPlace sampled = sample_place(bounded, token, nucleus);
    if (!sampled.open) return sampled;
  }
  const NucleusPlace proven = prove_place(bounded, token, nucleus);
  return proven.open && may_be_sampled ? place_by_all(bounded, token, nucleus) : proven;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
