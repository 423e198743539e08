// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/export.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// The probabilities of the next token: of every token of a vocabulary, or of a few, all others having none.
class TOPKSOFTMAX_EXPORT Distribution {
 public:
  /// No token has a probability yet: only to be assigned to.
  Distribution() = default;

  /// Weights of tokens 0, 1, …, divided by their sum. Throws Error unless they are finite, at least 0, and
  /// not all 0.
  static Distribution of_all(std::vector<double> weights);

  /// Weights of some tokens, divided by their sum; ids strictly ascending, from 0 on. Throws Error for other
  /// ids, as many ids as weights not being there, and as of_all does.
  static Distribution of_some(std::vector<TokenId> ids, std::vector<double> weights);

  /// Certainty: what a greedy choice is drawn from.
  static Distribution certain(TokenId id) { return of_some({id}, {1.0}); }

  /// The probability of a token. Cost: O(log size()), O(1) where every token has one.
  double operator[](TokenId id) const;

  /// The token at 0 ≤ u < 1 of the cumulative distribution, by ascending ids; never one of probability 0.
  /// Cost: reads size() probabilities.
  TokenId draw(double u) const;

  /// How many tokens are listed, and the i-th of them.
  std::size_t size() const { return probabilities_.size(); }
  TokenId id(std::size_t i) const { return ids_.empty() ? static_cast<TokenId>(i) : ids_[i]; }
  std::span<const double> probabilities() const { return probabilities_; }

 private:
  Distribution(std::vector<TokenId> ids, std::vector<double> weights);

  std::vector<TokenId> ids_;  ///< ascending; empty: tokens 0, 1, …
  std::vector<double> probabilities_;
};

}  // namespace topksoftmax
