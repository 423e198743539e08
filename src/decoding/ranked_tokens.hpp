// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/top_k.hpp"

namespace topksoftmax {

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

}  // namespace topksoftmax
