// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/row_sample.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/nucleus.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/sampled_log_z.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

// log Z, and the place of a token, from ever larger samples until these tell, or else from all rows.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The normal distribution's two-sided quantile of 99.9 %, and some for looking more than once.
inline constexpr double kThreeNines = 3.6;
/// Rows that are drawn at first.
inline constexpr std::size_t kFirstStrata = 64;
/// Beyond this share of the vocabulary a sample is no better than all rows.
inline constexpr std::size_t kSampledShare = 4;
/// The most that weights may scatter around their guesses (Tally::scatter) for those drawn to tell how far
/// the others go. On real heads few contexts in a hundred exceed it, those unlike any learned ones nearly
/// all.
inline constexpr double kMostScatter = 2.0;

/// What a sample, or all rows, have told.
struct SampledTally {
  Tally tally;
  double best = 0.0;
  std::size_t rows_read = 0;

  /// Half of the interval of confidence, as a share.
  double error() const { return kThreeNines * std::sqrt(tally.mass.variance) / tally.mass.value; }

  SampledLogZ log_z(double temperature) const {
    return {.log_z = best / temperature + std::log(tally.mass.value),
            .error = -std::log1p(-std::min(error(), 1.0)),
            .rows_read = rows_read};
  }

  NucleusPlace place(double temperature) const {
    return {.inside = tally.margin.value < 0.0, .log_z = log_z(temperature)};
  }
};

/// The tally of all tokens, from their logits.
inline SampledTally tally_all(const BoundedQuery& bounded, double temperature, const Ranking& ranking) {
  const kernels::Rows& rows = bounded.layer.rows();
  auto* const logits = bounded.scratch().logits.get<float>(rows.count);
  scan(bounded.workspace, rows, 0, rows.count, bounded.query.h, logits);
  kernels::apply_edits(bounded.query.edits, rows.count, logits);
  const auto best = static_cast<double>(kernels::max(logits, rows.count));
  SampledTally all = {.tally = {}, .best = best, .rows_read = rows.count};
  for (std::size_t i = 0; i < rows.count; ++i) {
    const double weight = std::exp(tempered(logits[i], best, temperature));
    const bool is_before = ranks_before(ScoredToken{logits[i], static_cast<TokenId>(i)}, ranking.token);
    all.tally.mass.add(weight);
    all.tally.margin.add(weight * ranking.factor(is_before));
  }
  return all;
}

/// Samples until excess(tally), the deviation as a multiple of what it may be, is no more than 1. Nothing
/// where bounds do not hold, where so many rows would be read that a scan is better, where too few could be
/// drawn to tell how much they vary, and where weights scatter too far around all guesses.
template <class Excess>
std::optional<SampledTally> sample_until(const BoundedQuery& bounded, double temperature,
                                         const Ranking& ranking, std::uint64_t seed, const Excess& excess) {
  const kernels::Rows& rows = bounded.layer.rows();
  const std::size_t most = rows.count / kSampledShare;
  if (!bounded.bounds.usable || most < kFirstStrata) return std::nullopt;
  RowSample sample(bounded, temperature, ranking, seed);
  if (!sample.is_usable()) return std::nullopt;
  for (std::size_t strata = kFirstStrata;;) {
    const SampledTally found = {
        .tally = sample.tally(strata), .best = sample.best(), .rows_read = sample.rows_read()};
    if (!(found.tally.scatter <= kMostScatter)) {
      if (!sample.can_sharpen()) return std::nullopt;
      sample.sharpen();
      continue;
    }
    const double ratio = excess(found.tally);
    if (ratio <= 1.0) return found;
    const double wanted = std::max(2.0, 1.2 * ratio * ratio) * static_cast<double>(strata);
    const bool is_dear =
        wanted * static_cast<double>(rows.bytes(1)) > static_cast<double>(sample.bytes_to_sharpen());
    if (sample.can_sharpen() && is_dear) {
      sample.sharpen();
      continue;
    }
    if (!(wanted <= static_cast<double>(most))) return std::nullopt;
    strata = static_cast<std::size_t>(wanted);
  }
}

/// log Z of a context that is bounded.
inline SampledLogZ sample_log_z(const BoundedQuery& bounded, const SampledLogZOptions& options) {
  // log(1 + x) falls faster below than it rises above.
  const double wanted = 1.0 - std::exp(-options.error);
  const std::optional<SampledTally> sampled =
      sample_until(bounded, options.temperature, {}, options.seed, [wanted](const Tally& tally) {
        return kThreeNines * std::sqrt(tally.mass.variance) / (wanted * tally.mass.value);
      });
  const SampledTally found = sampled ? *sampled : tally_all(bounded, options.temperature, {});
  return found.log_z(options.temperature);
}

/// Whether a nucleus has a token: told where the margin is surely on one side, and where it does not matter
/// within the error. Left open where a sample does not tell.
inline NucleusPlace sample_place(const BoundedQuery& bounded, const ScoredToken& token,
                                 const Nucleus& nucleus) {
  const double tolerated = nucleus.share * (1.0 - std::exp(-nucleus.error));
  const std::optional<SampledTally> sampled = sample_until(
      bounded, nucleus.temperature, {token, nucleus.share}, nucleus.seed, [tolerated](const Tally& tally) {
        const double clear = std::max(std::abs(tally.margin.value), tolerated * tally.mass.value);
        return kThreeNines * std::sqrt(tally.margin.variance) / clear;
      });
  if (!sampled) return {.open = true};
  return sampled->place(nucleus.temperature);
}

/// The same by all rows.
inline NucleusPlace place_by_all(const BoundedQuery& bounded, const ScoredToken& token,
                                 const Nucleus& nucleus) {
  return tally_all(bounded, nucleus.temperature, {token, nucleus.share}).place(nucleus.temperature);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
