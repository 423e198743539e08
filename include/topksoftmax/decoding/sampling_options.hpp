// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "topksoftmax/check_query.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A step of sampling: one of the things that SamplingOptions do to a distribution.
enum class SamplingStep : std::uint8_t { temperature, top_n_sigma, top_k, typical_p, top_p, min_p, xtc };

/// The steps, each once, in the order in which they are taken. Make one of your own by listing them.
struct SamplingOrder {
  /// Every SamplingStep once.
  std::array<SamplingStep, 7> steps;

  /// Temperature, top-k, top-p, min-p, typical-p, in the order of generate(); top-n-sigma and XTC, which it
  /// lacks, come last.
  static const SamplingOrder hugging_face;
  /// Top-n-sigma, top-k, typical-p, top-p, min-p, XTC, temperature: the default sampler chain, whose cuts
  /// are made by the layer's own probabilities.
  static const SamplingOrder llama_cpp;

  /// Whether both take the same steps in the same order.
  friend bool operator==(const SamplingOrder&, const SamplingOrder&) = default;
};

inline constexpr SamplingOrder SamplingOrder::hugging_face = {
    {SamplingStep::temperature, SamplingStep::top_k, SamplingStep::top_p, SamplingStep::min_p,
     SamplingStep::typical_p, SamplingStep::top_n_sigma, SamplingStep::xtc}};
inline constexpr SamplingOrder SamplingOrder::llama_cpp = {
    {SamplingStep::top_n_sigma, SamplingStep::top_k, SamplingStep::typical_p, SamplingStep::top_p,
     SamplingStep::min_p, SamplingStep::xtc, SamplingStep::temperature}};

/// What is drawn from: each step acts on what the steps before it left, renormalised.
struct SamplingOptions {
  /// Logits are divided by it: 1e-30 to 1e30; 0: always the most probable token (greedy), whatever is cut.
  double temperature = 1.0;
  std::size_t top_k = 0;  ///< the k most probable tokens stay; 0: all
  double top_p = 1.0;     ///< the nucleus stays: the fewest most probable whose probabilities reach top_p
  double min_p = 0.0;     ///< tokens stay that are at least min_p times as probable as the most probable
  /// Tokens stay whose −log p is nearest to its mean, the entropy, until their probabilities reach typical_p;
  /// those as near as the last as well (Meister et al. 2023, "Locally Typical Sampling"). 1: all. Where
  /// two are as near within 1e-6 or so, or probabilities reach typical_p within that, rounding decides.
  double typical_p = 1.0;
  /// Tokens stay whose logits are within so many standard deviations of the best one's; the deviation is that
  /// of the logits of the tokens left (Tang et al. 2024, "Top-nσ"). 0: all.
  double top_n_sigma = 0.0;
  /// With this probability the tokens at least as probable as xtc_threshold are left out, but for the least
  /// probable of them ("exclude top choices"). The key of a draw decides. 0: never.
  double xtc_probability = 0.0;
  double xtc_threshold = 0.1;  ///< of a distribution's probabilities: above 0 and at most 1
  /// In which order the steps are taken.
  SamplingOrder order = SamplingOrder::hugging_face;
  /// How far off log Z may be where top_p and XTC cut by it, but for one draw in a thousand. Where the
  /// bounds of a proven head do not decide, a sample of the rows does (TopKSoftmax::place_in_nucleus,
  /// sample_log_z), and log_prob and its bounds take the sample for exact: they are off by as much at most
  /// where the temperature comes before the cuts and XTC does not act. Tokens at the edge of a nucleus may
  /// then be in or out. 0: log Z is exact.
  double log_z_error = 0.0;
};

/// Throws std::invalid_argument unless temperature is 0 or from 1e-30 to 1e30, 0 < top_p ≤ 1,
/// 0 ≤ min_p ≤ 1, 0 < typical_p ≤ 1, top_n_sigma ≥ 0 is finite, 0 ≤ xtc_probability ≤ 1,
/// 0 < xtc_threshold ≤ 1, the order has every step, and log_z_error ≥ 0 is finite.
void check(const SamplingOptions& options);

/// A token that was drawn.
struct SampledToken {
  /// The token.
  TokenId id = 0;
  float logit = 0.0F;     ///< as the layer gives it, with the query's bias
  double log_prob = 0.0;  ///< of the distribution that was drawn from; XTC has acted on it or not
  /// Proven bounds but for what SamplingOptions::log_z_error lets be sampled: equal to log_prob unless log Z
  /// was known as an interval only.
  double log_prob_low = 0.0;
  double log_prob_high = 0.0;  ///< likewise
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Whether a step leaves anything out; the temperature does not.
inline bool cuts(const SamplingOptions& options, SamplingStep step) {
  switch (step) {
    case SamplingStep::temperature:
      break;
    case SamplingStep::top_n_sigma:
      return options.top_n_sigma > 0.0;
    case SamplingStep::top_k:
      return options.top_k > 0;
    case SamplingStep::typical_p:
      return options.typical_p < 1.0;
    case SamplingStep::top_p:
      return options.top_p < 1.0;
    case SamplingStep::min_p:
      return options.min_p > 0.0;
    case SamplingStep::xtc:
      return options.xtc_probability > 0.0;
  }
  return false;
}

inline void refuse(const std::string& name, double value, const std::string& limit) {
  throw std::invalid_argument("sampling: " + name + " is " + value_text(value) + "; it must be " + limit);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline void check(const SamplingOptions& options) {
  const bool tempered =
      options.temperature >= detail::kLeastTemperature && options.temperature <= detail::kMostTemperature;
  if (!tempered && options.temperature != 0.0) {
    detail::refuse("temperature", options.temperature, "0 (greedy), or from 1e-30 to 1e30");
  }
  if (!(options.top_p > 0.0 && options.top_p <= 1.0))
    detail::refuse("top_p", options.top_p, "above 0 and at most 1");
  if (!(options.min_p >= 0.0 && options.min_p <= 1.0))
    detail::refuse("min_p", options.min_p, "between 0 and 1");
  if (!(options.typical_p > 0.0 && options.typical_p <= 1.0))
    detail::refuse("typical_p", options.typical_p, "above 0 and at most 1");
  if (!(options.top_n_sigma >= 0.0 && options.top_n_sigma <= std::numeric_limits<double>::max()))
    detail::refuse("top_n_sigma", options.top_n_sigma, "finite and at least 0");
  if (!(options.xtc_probability >= 0.0 && options.xtc_probability <= 1.0))
    detail::refuse("xtc_probability", options.xtc_probability, "between 0 and 1");
  if (!(options.xtc_threshold > 0.0 && options.xtc_threshold <= 1.0))
    detail::refuse("xtc_threshold", options.xtc_threshold, "above 0 and at most 1");
  if (!(options.log_z_error >= 0.0 && options.log_z_error <= std::numeric_limits<double>::max()))
    detail::refuse("log_z_error", options.log_z_error, "finite and at least 0");
  std::array<SamplingStep, 7> steps = options.order.steps;
  std::sort(steps.begin(), steps.end());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] != static_cast<SamplingStep>(i))
      throw std::invalid_argument("sampling: the order must have every step once");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE
