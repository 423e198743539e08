// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/weights.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The probabilities of the next token: of every token of a vocabulary, or of a few, all others having none.
class TOPKSOFTMAX_EXPORT Distribution {
 public:
  /// No token has a probability yet: only to be assigned to.
  Distribution() = default;

  /// Weights of tokens 0, 1, …, divided by their sum. Throws Error where one is NaN or below 0, and unless
  /// their sum is finite and above 0: so where there are none.
  static Distribution of_all(std::vector<double> weights);

  /// Weights of some tokens, divided by their sum; ids strictly ascending, from 0 on. Throws Error for other
  /// ids, where there are not as many ids as weights, and as of_all does.
  static Distribution of_some(std::vector<TokenId> ids, std::vector<double> weights);

  /// Certainty: what a greedy choice is drawn from. Throws Error for an id below 0.
  static Distribution certain(TokenId id) { return of_some({id}, {1.0}); }

  /// The probability of a token. Cost: O(log size()), O(1) where every token has one.
  double operator[](TokenId id) const;

  /// The token at 0 ≤ u < 1 of the cumulative distribution, by ascending ids; never one of probability 0.
  /// Cost: reads size() probabilities.
  TokenId draw(double u) const;

  /// How many tokens are listed.
  std::size_t size() const { return probabilities_.size(); }
  /// The i-th of them, i < size().
  TokenId id(std::size_t i) const { return ids_.empty() ? static_cast<TokenId>(i) : ids_[i]; }
  /// The probability of each token, in the same order; their sum is 1.
  std::span<const double> probabilities() const { return probabilities_; }

 private:
  Distribution(std::vector<TokenId> ids, std::vector<double> weights);

  std::vector<TokenId> ids_;  ///< ascending; empty: tokens 0, 1, …
  std::vector<double> probabilities_;
};

inline Distribution::Distribution(std::vector<TokenId> ids, std::vector<double> weights)
    : ids_(std::move(ids)), probabilities_(std::move(weights)) {
  const double sum = detail::sum_of(probabilities_);
  bool usable = std::isfinite(sum) && sum > 0.0;
  for (const double weight : probabilities_) usable &= weight >= 0.0;
  if (!usable) {
    for (std::size_t i = 0; i < probabilities_.size(); ++i) {
      if (std::isfinite(probabilities_[i]) && probabilities_[i] >= 0.0) continue;
      throw Error("distribution: the weight of token " + std::to_string(id(i)) + " is " +
                  detail::value_text(probabilities_[i]) + "; it must be finite and at least 0");
    }
    throw Error("distribution: the weights of " + std::to_string(probabilities_.size()) +
                " tokens sum up to " + detail::value_text(sum) + "; the sum must be finite and above 0");
  }
  const double scale = 1.0 / sum;
  for (double& probability : probabilities_) {
    probability = std::isfinite(scale) ? probability * scale : probability / sum;
  }
}

inline Distribution Distribution::of_all(std::vector<double> weights) {
  return Distribution({}, std::move(weights));
}

inline Distribution Distribution::of_some(std::vector<TokenId> ids, std::vector<double> weights) {
  if (ids.size() != weights.size()) {
    throw Error("distribution: there are " + std::to_string(ids.size()) + " tokens and " +
                std::to_string(weights.size()) + " weights; they must be as many");
  }
  TokenId previous = -1;
  for (const TokenId id : ids) {
    if (id <= previous) {
      throw Error("distribution: token " + std::to_string(id) + " follows " + std::to_string(previous) +
                  "; ids must be strictly ascending, from 0 on");
    }
    previous = id;
  }
  return Distribution(std::move(ids), std::move(weights));
}

inline double Distribution::operator[](TokenId id) const {
  std::size_t at = static_cast<std::size_t>(id);
  if (!ids_.empty()) {
    const auto found = std::lower_bound(ids_.begin(), ids_.end(), id);
    if (found == ids_.end() || *found != id) return 0.0;
    at = static_cast<std::size_t>(found - ids_.begin());
  }
  return at < probabilities_.size() ? probabilities_[at] : 0.0;
}

inline TokenId Distribution::draw(double u) const {
  if (probabilities_.empty()) throw Error("distribution: it has no tokens; it was never assigned to");
  return id(detail::find_in_cumulative(probabilities_, u));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
