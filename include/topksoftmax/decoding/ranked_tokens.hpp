// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/weights.hpp"
#include "topksoftmax/top_k.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The best of all tokens that may be drawn, and what is known of the others. Weights are exp((logit − the
/// best one's)/temperature).
struct RankedTokens {
  std::span<const float> logits;  ///< at least one, best first
  std::size_t total = 0;          ///< tokens in all, these among them
  double outside_low = 0.0;       ///< the sum of the others' weights lies between these
  double outside_high = 0.0;
};

/// The tokens of an answer that is proven, and the others by its log Z.
RankedTokens ranked_tokens(const TopK& answer, std::size_t total, double temperature);

/// What is left of a distribution once its options were applied.
struct Kept {
  std::vector<double> weights;  ///< of the leading tokens that stay
  double outside_low = 0.0;     ///< the sum of the weights of the others that stay lies between these
  double outside_high = 0.0;
};

/// Applies temperature (above 0), top-k, top-p and min-p. Nothing if the tokens are too few, or what is known
/// of the others too little, to tell which stay.
std::optional<Kept> keep(const RankedTokens& tokens, const SamplingOptions& options);

/// The weight on which u falls, 0 ≤ u < 1 of the cumulative sum; nothing if that is not known, or outside.
std::optional<std::size_t> find(const Kept& kept, double u);

/// Room for the rounding of exponentials and of an exact log Z.
inline constexpr double kLogitRounding = 1e-6;

struct Bounds {
  double low;
  double high;
};

/// Bounds of Σ x^a over n ≥ 1 numbers 0 < x ≤ largest whose sum lies within bounds: powers above 1 shrink
/// what is below the largest, powers below 1 gain most where all are equal.
inline Bounds power_sum(Bounds sum, double n, double largest, double a) {
  const double of_equals = std::pow(n, 1.0 - a);
  const double by_largest = std::pow(largest, a - 1.0);
  const double all_largest = n * std::pow(largest, a);
  const double low = a > 1.0 ? of_equals * std::pow(sum.low, a) : sum.low * by_largest;
  const double high = a > 1.0 ? sum.high * by_largest : of_equals * std::pow(sum.high, a);
  return {std::isfinite(low) ? low : 0.0, std::min(all_largest, high)};
}

/// The fewest leading weights that reach `target`; their number + 1 if all do not.
inline std::size_t reach(std::span<const double> weights, double target) {
  double sum = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum >= target) return i + 1;
  }
  return weights.size() + 1;
}

/// The first i with w_0 + … + w_i > target; their number if there is none.
inline std::size_t passing(std::span<const double> weights, double target) {
  double sum = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum > target) return i;
  }
  return weights.size();
}

inline RankedTokens ranked_tokens(const TopK& answer, std::size_t total, double temperature) {
  RankedTokens tokens = {.logits = answer.logits, .total = total};
  const std::size_t others = total - answer.size();
  if (others == 0) return tokens;
  const auto best = static_cast<double>(answer.logits.front());
  double inside = 0.0;
  for (const float logit : answer.logits) inside += std::exp(static_cast<double>(logit) - best);
  const double largest = std::exp(static_cast<double>(answer.logits.back()) - best);
  const bool known = answer.normalizer == Normalizer::exact || answer.normalizer == Normalizer::interval;
  const double all_largest = static_cast<double>(others) * largest;
  Bounds sum = {0.0, all_largest};
  if (known) {
    sum.low = std::max(0.0, std::exp(answer.log_z_low - best) * (1.0 - kLogitRounding) - inside);
    sum.high = std::min(all_largest, std::exp(answer.log_z_high - best) * (1.0 + kLogitRounding) - inside);
  }
  const Bounds weights =
      temperature == 1.0 ? sum : power_sum(sum, static_cast<double>(others), largest, 1.0 / temperature);
  tokens.outside_low = weights.low;
  tokens.outside_high = std::max(weights.low, weights.high);
  return tokens;
}

inline std::optional<Kept> keep(const RankedTokens& tokens, const SamplingOptions& options) {
  Kept kept;
  const auto best = static_cast<double>(tokens.logits.front());
  const std::size_t most = options.top_k == 0 ? tokens.total : std::min(options.top_k, tokens.total);
  const std::size_t listed = std::min(most, tokens.logits.size());
  kept.weights.reserve(listed);
  for (const float logit : tokens.logits.first(listed)) {
    kept.weights.push_back(std::exp((static_cast<double>(logit) - best) / options.temperature));
  }
  bool all_listed = listed == most;
  if (!all_listed) {
    kept.outside_low = most < tokens.total ? 0.0 : tokens.outside_low;
    kept.outside_high = tokens.outside_high;
  }
  const auto cut = [&](std::size_t count) {
    kept.weights.resize(std::min(count, listed));
    kept.outside_low = kept.outside_high = 0.0;
    all_listed = true;
  };
  if (options.top_p < 1.0) {
    const double sum = sum_of(kept.weights);
    const std::size_t count = reach(kept.weights, options.top_p * (sum + kept.outside_low));
    if (count != reach(kept.weights, options.top_p * (sum + kept.outside_high))) return std::nullopt;
    if (count > listed && !all_listed) return std::nullopt;
    cut(count);
  }
  if (options.min_p > 0.0) {
    const auto end = std::find_if(kept.weights.begin(), kept.weights.end(),
                                  [&options](double weight) { return weight < options.min_p; });
    if (end == kept.weights.end() && !all_listed) return std::nullopt;
    cut(static_cast<std::size_t>(end - kept.weights.begin()));
  }
  return kept;
}

inline std::optional<std::size_t> find(const Kept& kept, double u) {
  const double sum = sum_of(kept.weights);
  const std::size_t at = passing(kept.weights, u * (sum + kept.outside_low));
  if (kept.outside_high == 0.0) return std::min(at, kept.weights.size() - 1);
  if (at != passing(kept.weights, u * (sum + kept.outside_high)) || at == kept.weights.size()) {
    return std::nullopt;
  }
  return at;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
