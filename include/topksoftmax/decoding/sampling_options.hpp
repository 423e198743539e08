// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What comes first: the temperature or the cuts. Cuts are always top-k, top-p, min-p, each of what the one
/// before it left.
enum class SamplingOrder : std::uint8_t {
  hugging_face,  ///< temperature, then cuts, as generate() has it
  llama_cpp      ///< cuts by the layer's own probabilities, then temperature, as its sampler chain has it
};

/// What is drawn from: each step acts on what the step before it left, renormalised.
struct SamplingOptions {
  /// Logits are divided by it: 1e-30 to 1e30; 0: always the most probable token (greedy).
  double temperature = 1.0;
  std::size_t top_k = 0;  ///< the k most probable tokens stay; 0: all
  double top_p = 1.0;     ///< of these the nucleus: the fewest most probable whose probabilities reach top_p
  double min_p = 0.0;     ///< of these the ones at least min_p times as probable as the most probable
  SamplingOrder order = SamplingOrder::hugging_face;
};

/// Throws std::invalid_argument unless temperature is 0 or from 1e-30 to 1e30, 0 < top_p ≤ 1 and
/// 0 ≤ min_p ≤ 1.
void check(const SamplingOptions& options);

/// A token that was drawn.
struct SampledToken {
  TokenId id = 0;
  float logit = 0.0F;         ///< as the layer gives it, with the query's bias
  double log_prob = 0.0;      ///< of the distribution that was drawn from
  double log_prob_low = 0.0;  ///< proven bounds: equal to log_prob unless log Z was known as an interval only
  double log_prob_high = 0.0;  ///< likewise
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Their reciprocals, and a logit's distance times these, must stay within the floats, and above 0.
inline constexpr double kLeastTemperature = 1e-30;
inline constexpr double kMostTemperature = 1e30;

/// The temperature that cuts are made at.
inline double cutting_temperature(const SamplingOptions& options) {
  return options.order == SamplingOrder::llama_cpp ? 1.0 : options.temperature;
}

inline void refuse(const std::string& name, double value, const std::string& limit) {
  throw std::invalid_argument("sampling: " + name + " is " + std::to_string(value) + "; it must be " + limit);
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
}

}  // namespace TOPKSOFTMAX_NAMESPACE
