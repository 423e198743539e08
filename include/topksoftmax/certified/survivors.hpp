// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/bounds_view.hpp"
#include "topksoftmax/certified/divided_bounds.hpp"
#include "topksoftmax/certified/outside.hpp"
#include "topksoftmax/certified/reaching_rows.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The tokens whose logits may reach a threshold, by their prefixes and then by their tails too.
struct Survivors {
  std::span<const TokenId> ids;
  kernels::SumBounds outside{0.0, 0.0};  ///< of Σ exp(logit − threshold) over all other rows, if asked for
  std::size_t bounded = 0;               ///< rows that were bounded after bound(), once or twice
  std::size_t bytes_read = 0;
};

/// Beyond this share of the vocabulary nothing is gained by screening.
inline constexpr std::size_t kBoundingShare = 4;

/// Whether so few tokens are asked for that bounding all others can pay, and no log Z that takes them all, as
/// an interval does that is to be proven where bounds are not.
inline bool is_worth_bounding(const Query& query, const CertifiedIndex& index) {
  const bool all_for_log_z =
      query.log_z_tolerance == 0.0 || (!index.is_proven() && !std::isinf(query.log_z_tolerance));
  return query.k <= index.rows() / kBoundingShare && !(query.probabilities && all_for_log_z);
}

/// Bounds rows again, by their tails, and moves the places of those whose products may still reach the
/// threshold to the front; returns how many these are. The bounds of the others are what the rows' estimates
/// and radii begin with then.
inline std::size_t keep_by_tails(const BoundedQuery& bounded, float threshold, const ReachingRows& rows) {
  tail_bounds(bounded.workspace, bounded.index.tails.tails(), bounded.bounds.tail, rows.places, rows.count,
              rows.estimates, rows.radii);
  std::size_t kept = 0;
  std::size_t dropped = 0;
  for (std::size_t i = 0; i < rows.count; ++i) {
    const bool below = rows.estimates[i] + rows.radii[i] < threshold;
    rows.estimates[dropped] = rows.estimates[i];
    rows.radii[dropped] = rows.radii[i];
    dropped += below ? 1U : 0U;
    rows.places[kept] = rows.places[i];
    kept += below ? 0 : 1;
  }
  return kept;
}

/// The survivors of a threshold among rows that hold all which reach one that is no higher: these are bounded
/// by their tails too. Where they are more than `most`, all of them, unasked by their tails. Works where the
/// rows lie, which are gone then.
inline Survivors survivors(const BoundedQuery& bounded, const ReachingRows& rows, float threshold,
                           std::size_t most) {
  const CertifiedIndex& index = bounded.index;
  Survivors result;
  const double shift = std::exp(static_cast<double>(rows.threshold) - static_cast<double>(threshold));
  result.outside = {rows.rest.low * shift, rows.rest.high * shift};
  std::size_t kept = rows.count;
  if (!index.tails.empty() && rows.count <= most) {
    kept = keep_by_tails(bounded, kernels::lowest_product(bounded.layer.transform(), threshold), rows);
    result.bounded = rows.count;
    result.bytes_read = rows.count * index.tails.tails().row_bytes();
    if (bounded.query.probabilities) {
      const std::size_t dropped = rows.count - kept;
      const BoundsView logits = logit_bounds(bounded, rows.bounds().part(0, dropped));
      const kernels::SumBounds more =
          kernels::sum_exp_bounds(logits.estimates, logits.radii, dropped, threshold);
      result.outside.low += more.low;
      result.outside.high += more.high;
    }
  }
  TokenId* const ids = rows.places;
  if (!index.order.is_natural()) {
    for (std::size_t i = 0; i < kept; ++i) ids[i] = index.token(rows.place(i));
  }
  result.ids = {ids, kept};
  return result;
}

/// Calls visit() with each token that the query biases and allows: it has no bounds.
template <class Visit>
void visit_biased(const BoundedQuery& bounded, const Visit& visit) {
  const kernels::LogitEdits& edits = bounded.query.edits;
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    const TokenBias& bias = edits.bias[b];
    if (!edits.allows(bias.id)) continue;
    float logit = 0.0F;
    kernels::scan_gathered(bounded.layer.rows(), &bias.id, 1, bounded.query.h, &logit);
    visit(ScoredToken{kernels::add_bias(logit, bias.bias), bias.id});
  }
}

/// log Σ exp of the candidates' logits, which stay in the workspace and with the candidates.
inline double score(const BoundedQuery& bounded, Candidates& candidates) {
  const std::size_t count = candidates.ids.size();
  auto* const logits = bounded.scratch().logits.get<float>(count);
  scan_gathered(bounded.workspace, bounded.layer.rows(), candidates.ids.data(), count, bounded.query.h,
                logits);
  candidates.logits = logits;
  return kernels::log_sum_exp(logits, count);
}

/// Whether anything can be ruled out by a threshold that k tokens reach: not where any product may.
inline bool can_rule_out(const BoundedQuery& bounded, float threshold) {
  return bounded.bounds.usable &&
         kernels::lowest_product(bounded.layer.transform(), threshold) > std::numeric_limits<float>::lowest();
}

/// Candidates of which nothing is known but what it took to bound the context.
inline Candidates bounded_candidates(const BoundedQuery& bounded) {
  Candidates candidates = Candidates::all();
  candidates.certified = bounded.index.is_proven();
  candidates.confidence = 1.0 - bounded.index.options.failure_probability;
  candidates.screened = bounded.bounds.bounded;
  candidates.bytes_read = bounded.bounds.bytes_read;
  return candidates;
}

/// What a cut came to where the interval of log Z was to be narrower.
struct TriedCut {
  double width;      ///< of the interval
  double survivors;  ///< rows that were scored
};

/// How many rows would be scored, about, for an interval of this width: both logarithms go on as they did
/// from one cut to the next, which was lower.
inline double expected_survivors(const TriedCut& higher, const TriedCut& lower, double width) {
  const double narrowed = std::log(higher.width / lower.width);
  if (!(narrowed > 0.0)) return std::numeric_limits<double>::infinity();
  const double steps = std::log(lower.width / width) / narrowed;
  return lower.survivors * std::pow(lower.survivors / higher.survivors, steps);
}

/// The tokens that may be among the k best when k tokens are known to reach the threshold that `rows` may
/// reach: certified, with log Z as an interval no wider than the query tolerates. Every token where these are
/// too many, or would be for so narrow an interval by what two cuts came to, or where their prefixes let more
/// than `most` pass, which then costs no more than finding that out.
inline Candidates candidates_among(const BoundedQuery& bounded, ReachingRows rows, std::size_t most) {
  // How much lower the cut is for the first attempt at a narrower interval; twice as much every time.
  constexpr float kFirstStep = 1.0F;
  // Floats of such a size are half a nat apart: sums cannot be bounded any more, and few logits are near.
  constexpr float kFarApart = 0x1p22F;
  const CertifiedIndex& index = bounded.index;
  const Query& query = bounded.query;
  Candidates candidates = bounded_candidates(bounded);
  const bool any_width = std::isinf(query.log_z_tolerance);
  const std::size_t too_many = index.rows() / kBoundingShare;
  std::optional<TriedCut> higher;
  float step = kFirstStep;
  for (float cut = rows.threshold;; rows = rows_reaching(bounded, cut)) {
    const Survivors found = survivors(bounded, rows, cut, most);
    candidates.bytes_read += rows.bytes_read + found.bytes_read;
    candidates.screened += rows.bounded + found.bounded;
    if (found.ids.size() > std::min(most, too_many)) break;
    most = index.rows();  // a lower cut lets more pass, and says nothing of the threshold
    candidates.ids = found.ids;
    candidates.everything = false;
    if (!query.probabilities) return candidates;
    candidates.normalizer = index.is_proven() ? Normalizer::interval : Normalizer::low_rank;
    candidates.outside_low = static_cast<double>(cut) + std::log(found.outside.low);
    // None of them reaches the cut, which is more than the sum tells where it could not be bounded.
    candidates.outside_high =
        static_cast<double>(cut) + std::log(std::min(found.outside.high, static_cast<double>(index.rows())));
    candidates.outside = std::abs(cut) < kFarApart
                             ? estimated_outside(bounded, cut, candidates.outside_low,
                                                 candidates.outside_high, candidates.bytes_read)
                             : candidates.outside_low;
    if (any_width) return candidates;
    const auto [low, high] = log_z_bounds(candidates, score(bounded, candidates));
    if (high - low <= query.log_z_tolerance) return candidates;
    const TriedCut tried = {.width = high - low, .survivors = static_cast<double>(found.ids.size())};
    const bool grows = higher && higher->survivors > 0.0 && tried.survivors > higher->survivors;
    if (grows && expected_survivors(*higher, tried, query.log_z_tolerance) > static_cast<double>(too_many)) {
      break;
    }
    higher = tried;
    cut -= step;
    step *= 2.0F;
  }
  // Those of a higher cut lay where the rows of this one do.
  candidates.ids = {};
  candidates.logits = nullptr;
  candidates.everything = true;
  return candidates;
}

/// The same of all rows.
inline Candidates candidates_reaching(const BoundedQuery& bounded, float threshold, std::size_t most) {
  if (!can_rule_out(bounded, threshold)) return bounded_candidates(bounded);
  return candidates_among(bounded, rows_reaching(bounded, threshold), most);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
