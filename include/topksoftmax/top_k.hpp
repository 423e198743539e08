// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What the log-probabilities of an answer are normalised by.
enum class Normalizer : std::uint8_t {
  none,        ///< nothing: probabilities were not asked for, log_z is NaN
  exact,       ///< log Z over every (allowed) token
  candidates,  ///< over the candidates only: all other tokens count as impossible, so probabilities are too
               ///< high
  low_rank,    ///< over the candidates, plus approximate logits for all other tokens
  interval,    ///< proven bounds: the exact log Z lies in [log_z_low, log_z_high]; log_z estimates it
  learned,     ///< over the candidates, plus what contexts have taught of the mass of all other tokens:
               ///< TopKSoftmax::log_z_error() tells how far off that is
};

/// How far a log Z that was learned is off: |log Z − the exact one| in nats, over contexts that were held out
/// when it was learned: a fifth of them. Where these were a few hundred, that says little of rare errors, and
/// of other texts.
struct LogZError {
  /// The median of |difference| in nats.
  double median = 0.0;
  double p99 = 0.0;  ///< the 99th percentile
};

/// What a query did, to explain what it cost.
struct QueryWork {
  std::size_t bytes_read = 0;  ///< of weights and index, each byte counted as often as it is asked for
  std::size_t screened = 0;    ///< rows, clusters or nodes that the screener scored or bounded
  std::size_t candidates = 0;  ///< tokens whose exact logit was computed
  bool fell_back = false;      ///< the candidates did not suffice and the whole vocabulary was scanned
  bool repaired = false;       ///< the backend that Certify wraps had other tokens to offer, or too few
};

/// The answer to a query: min(k, tokens allowed) tokens, by falling logit, ties to the lower token id.
///
/// Every logit is finite: one beyond float32's range becomes the largest finite value of its sign, NaN
/// (an overflow on both sides) becomes the lowest.
struct TopK {
  /// The tokens, best first.
  std::vector<TokenId> ids;
  std::vector<float> logits;  ///< of each: w·h + b, transformed as the layer says, with the query's bias
  /// log Σ exp(logit) in nats, over what `normalizer` says; NaN where no probabilities were asked for.
  double log_z = std::numeric_limits<double>::quiet_NaN();
  /// Its bounds: equal to log_z unless Normalizer::interval.
  double log_z_low = std::numeric_limits<double>::quiet_NaN();
  /// The upper of the two.
  double log_z_high = std::numeric_limits<double>::quiet_NaN();
  /// What log Z counts.
  Normalizer normalizer = Normalizer::none;
  bool certified = false;  ///< true: proven to be the exact top-k of the layer
  /// The least probability that it is: 1 where certified, 0 where nothing is known, and between them as
  /// CertifiedOptions::failure_probability says.
  double confidence = 0.0;
  /// What the answer has cost.
  QueryWork work;

  /// Number of tokens: k, or all that are allowed where these are fewer.
  std::size_t size() const { return ids.size(); }

  /// The natural logarithm of the i-th token's probability, i < size(), under `normalizer`.
  double log_prob(std::size_t i) const { return static_cast<double>(logits[i]) - log_z; }

  /// The bounds of log_prob(i): equal to it unless Normalizer::interval.
  std::pair<double, double> log_prob_interval(std::size_t i) const {
    return {static_cast<double>(logits[i]) - log_z_high, static_cast<double>(logits[i]) - log_z_low};
  }
};

/// What an answer proves of a nucleus: of the fewest of the most probable tokens whose probabilities sum up
/// to p or more.
enum class NucleusCheck : std::uint8_t {
  inside,   ///< all its tokens are in the answer
  outside,  ///< some are not
  unknown,  ///< neither is proven
};

/// Whether the nucleus of 0 ≤ p ≤ 1 lies in an answer: proven from the exact log Z or its interval, unknown
/// for answers that are not certified or whose log Z is neither.
NucleusCheck check_nucleus(const TopK& answer, double p);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What doubles may lose of log Z: beyond logits of 10¹⁶ all of what tokens add to the largest one.
inline double log_z_rounding(double log_z) {
  return 4.0 * std::numeric_limits<double>::epsilon() * std::abs(log_z);
}

/// The same of an interval.
inline double log_z_rounding(const TopK& answer) {
  return std::max(log_z_rounding(answer.log_z_low), log_z_rounding(answer.log_z_high));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline NucleusCheck check_nucleus(const TopK& answer, double p) {
  const bool proven = answer.normalizer == Normalizer::exact || answer.normalizer == Normalizer::interval;
  if (!answer.certified || !proven) return NucleusCheck::unknown;
  // Of an exact log Z; an interval's holds it already.
  constexpr double rounding = kernels::kSumExpError;
  const double high = answer.log_z_high + detail::log_z_rounding(answer);
  const double low = answer.log_z_low - detail::log_z_rounding(answer);
  double least = 0.0;
  double most = 0.0;
  for (const float logit : answer.logits) {
    least += std::exp(static_cast<double>(logit) - high);
    most += std::exp(static_cast<double>(logit) - low);
  }
  if (least * (1.0 - rounding) >= p) return NucleusCheck::inside;
  return most * (1.0 + rounding) < p ? NucleusCheck::outside : NucleusCheck::unknown;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
