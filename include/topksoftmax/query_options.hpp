// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How a query is to be answered.
struct QueryOptions {
  /// Tokens wanted, at least 1; more than there are gives all.
  std::size_t k = 1;

  /// The tokens that may be returned, one bit each: a TokenMask, or words of 64 or 32 bits, which are not
  /// copied. Empty allows all; otherwise a bit for each of the V tokens. Forbidden tokens have probability 0.
  AllowedTokens allowed = {};

  /// Values added to the logits of these tokens: finite, ids strictly ascending and below V.
  std::span<const TokenBias> logit_bias = {};

  /// Whether log_z is wanted. Without it only ids and logits are found (Normalizer::none), which may cost
  /// less.
  bool probabilities = true;

  /// How hard the backend looks, in the unit of its own trade-off knob (its documentation names it); 0: as it
  /// was tuned (TopKSoftmax::usual_effort), or else built, `full_effort` exhausts the method.
  std::size_t effort = 0;

  /// For backends that answer with an interval of log Z (Normalizer::interval): how wide it may be (high −
  /// low). They look at more of the vocabulary until it is that narrow. 0, or less than rounding allows
  /// (1.2e-5), asks for the exact log Z. Other backends ignore it.
  double log_z_tolerance = std::numeric_limits<double>::infinity();

  /// Whether the workspace's last query was for the same context. The backend may then reuse what it still
  /// knows of it, which changes no answer. For callers that ask for more of the same: the next tokens of
  /// a grammar, a sample, bounds. A workspace that has last served another context or backend is detected.
  bool same_context = false;

  /// The effort that exhausts a method: its answers are then exact, where the method has such an effort.
  static constexpr std::size_t full_effort = std::numeric_limits<std::size_t>::max();
};

/// A set of allowed tokens, in the form that QueryOptions::allowed takes.
class TokenMask {
 public:
  /// A mask over `vocab` ≥ 1 tokens, all forbidden. Throws std::invalid_argument for none: a mask without
  /// words would allow all.
  explicit TokenMask(std::size_t vocab) : words_((vocab + 63) / 64, 0), vocab_(vocab) {
    if (vocab == 0) throw std::invalid_argument("TokenMask: there must be at least 1 token");
  }

  /// The same, all allowed.
  static TokenMask all(std::size_t vocab) {
    TokenMask mask(vocab);
    for (std::uint64_t& word : mask.words_) word = ~std::uint64_t{0};
    return mask;
  }

  // Each throws std::invalid_argument for an id outside of the vocabulary.
  /// Allows a token.
  void allow(TokenId id) { words_[word(id)] |= bit(id); }
  /// Forbids a token.
  void forbid(TokenId id) { words_[word(id)] &= ~bit(id); }
  /// Whether a token is allowed.
  bool allows(TokenId id) const { return (words_[word(id)] & bit(id)) != 0; }

  /// A view of the mask, which must outlive it.
  operator AllowedTokens() const { return AllowedTokens(words_); }

 private:
  static std::uint64_t bit(TokenId id) { return std::uint64_t{1} << (static_cast<std::size_t>(id) % 64); }
  std::size_t word(TokenId id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= vocab_) {
      throw std::invalid_argument("TokenMask: there is no token " + std::to_string(id) + " among " +
                                  std::to_string(vocab_));
    }
    return static_cast<std::size_t>(id) / 64;
  }

  std::vector<std::uint64_t> words_;
  std::size_t vocab_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
