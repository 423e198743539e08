// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/weights.hpp"
#include "topksoftmax/top_k.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The logarithm of a token's weight.
inline double tempered(float logit, double best, double temperature) {
  return (static_cast<double>(logit) - best) / temperature;
}

/// The lowest logit that min-p leaves, where the best one is `best`.
inline double lowest_logit(double best, const SamplingOptions& options) {
  return best + cutting_temperature(options) * std::log(options.min_p);
}

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

/// What is left of a distribution once its options were applied. Each of them leaves the tokens that rank
/// first, down to one of them.
struct Staying {
  std::size_t possible = 0;  ///< so many of the listed tokens stay, or may …
  std::size_t sure = 0;      ///< … and so many do
  bool others = false;       ///< whether tokens that are not listed may stay …
  bool others_sure = false;  ///< … and whether all of them do whose logits lowest_logit() admits
};

/// Applies top-k, top-p and min-p to tokens whose weights are those of the temperature that cuts are made at,
/// as far as it is known of the others what they leave.
Staying staying(const RankedTokens& tokens, const SamplingOptions& options);

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

/// The weights of logits.
inline std::vector<double> weights_of(std::span<const float> logits, double best, double temperature) {
  std::vector<double> weights;
  weights.reserve(logits.size());
  for (const float logit : logits) weights.push_back(std::exp(tempered(logit, best, temperature)));
  return weights;
}

inline Staying staying(const RankedTokens& tokens, const SamplingOptions& options) {
  const auto best = static_cast<double>(tokens.logits.front());
  const std::size_t most = options.top_k == 0 ? tokens.total : std::min(options.top_k, tokens.total);
  const std::size_t listed = std::min(most, tokens.logits.size());
  Staying stay = {.possible = listed, .sure = listed, .others = listed < most};
  stay.others_sure = stay.others && most == tokens.total;
  const auto cut = [&stay](std::size_t count) {
    stay.possible = count;
    stay.sure = std::min(stay.sure, count);
    stay.others = stay.others_sure = false;
  };
  if (options.top_p < 1.0) {
    const std::vector<double> weights =
        weights_of(tokens.logits.first(listed), best, cutting_temperature(options));
    const double sum = sum_of(weights);
    const double least = sum + (stay.others_sure ? tokens.outside_low : 0.0);
    const double greatest = sum + (stay.others ? tokens.outside_high : 0.0);
    stay.sure = std::min(listed, reach(weights, options.top_p * least));
    const std::size_t longest = reach(weights, options.top_p * greatest);
    if (longest <= listed || !stay.others) cut(std::min(longest, listed));
    stay.others_sure = false;
  }
  if (options.min_p > 0.0) {
    const double lowest = lowest_logit(best, options);
    const auto first = tokens.logits.begin();
    const auto end = std::find_if(first, first + static_cast<std::ptrdiff_t>(stay.possible),
                                  [lowest](float logit) { return static_cast<double>(logit) < lowest; });
    const auto count = static_cast<std::size_t>(end - first);
    if (count < listed) cut(count);
  }
  return stay;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
