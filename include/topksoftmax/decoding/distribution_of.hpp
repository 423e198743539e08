// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/kept_logits.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/numeric/finite.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Throws unless logits are finite, or −∞.
inline void check_logits(std::span<const float> logits) {
  if (all_finite(logits.data(), logits.size())) return;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] <= std::numeric_limits<float>::max()) continue;
    throw std::invalid_argument("distribution_of: the logit of token " + std::to_string(id) + " is " +
                                value_text(static_cast<double>(logits[id])) +
                                "; it must be finite, or -inf where the token is forbidden");
  }
}

/// The distribution that the options make of logits, by their places.
inline Distribution distribution_by_place(std::span<const float> logits, const SamplingOptions& options) {
  if (options.temperature == 0.0 || options.xtc_probability == 0.0)
    return KeptLogits(logits, options, false).distribution();
  const KeptLogits with(logits, options, true);
  if (options.xtc_probability == 1.0) return with.distribution();
  const KeptLogits without(logits, options, false);
  std::vector<double> weights(logits.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    weights[i] = options.xtc_probability * with[id] + (1.0 - options.xtc_probability) * without[id];
  }
  return Distribution::of_all(std::move(weights));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// The distribution over an answer's own tokens: all others have none, whatever their probability. What a
/// draft model draws from, and a caller that trusts an approximate head. Of what XTC leaves and of what it
/// would leave without acting it is the mixture. Throws std::invalid_argument as check() does and for an
/// answer without tokens.
inline Distribution distribution_of(const TopK& answer, const SamplingOptions& options) {
  check(options);
  if (answer.size() == 0) throw std::invalid_argument("distribution_of: the answer has no token");
  const Distribution by_place = detail::distribution_by_place(answer.logits, options);
  std::vector<std::pair<TokenId, double>> tokens;
  for (std::size_t i = 0; i < by_place.size(); ++i) {
    const auto place = static_cast<std::size_t>(by_place.id(i));
    tokens.emplace_back(answer.ids[place], by_place.probabilities()[i]);
  }
  std::sort(tokens.begin(), tokens.end());
  std::vector<TokenId> ids;
  std::vector<double> weights;
  for (const auto& [id, weight] : tokens) {
    ids.push_back(id);
    weights.push_back(weight);
  }
  return Distribution::of_some(std::move(ids), std::move(weights));
}

/// The same of logits of tokens 0, 1, … (−∞: forbidden). Throws std::invalid_argument as check() does, for a
/// logit that is NaN or +∞, and where none is finite. Cost: V exponentials, and the selection of the tokens
/// that stay.
inline Distribution distribution_of(std::span<const float> logits, const SamplingOptions& options) {
  check(options);
  detail::check_logits(logits);
  return detail::distribution_by_place(logits, options);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
