// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// What a query changes in the logits: a mask and biases (QueryOptions), in plain pointers.
struct LogitEdits {
  /// Which tokens may be returned; empty: all.
  AllowedTokens allowed = {};
  const TokenBias* bias = nullptr;  ///< ids strictly ascending
  /// Biases.
  std::size_t bias_count = 0;

  /// Whether nothing is changed.
  bool empty() const { return allowed.empty() && bias_count == 0; }
  /// Whether a token may be returned.
  bool allows(TokenId id) const { return allowed.allows(id); }

  /// The number of the first bias of a token that is not before `id`; bias_count where there is none.
  std::size_t first_bias(TokenId id) const {
    const auto before = [](const TokenBias& one, TokenId of) { return one.id < of; };
    return static_cast<std::size_t>(std::lower_bound(bias, bias + bias_count, id, before) - bias);
  }

  /// That of a token; null where it has none.
  const TokenBias* bias_of(TokenId id) const {
    const std::size_t found = first_bias(id);
    return found < bias_count && bias[found].id == id ? bias + found : nullptr;
  }
};

/// A computed logit with a query's bias added, kept finite.
inline float add_bias(float logit, float bias) {
  const float x = logit + bias;
  constexpr float limit = std::numeric_limits<float>::max();
  return x > limit ? limit : x < -limit ? -limit : x;
}

/// Applies the edits to the logits of all tokens; a forbidden one becomes −∞.
inline void apply_edits(const LogitEdits& edits, std::size_t vocab, float* logits) {
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    float& logit = logits[edits.bias[b].id];
    logit = add_bias(logit, edits.bias[b].bias);
  }
  edits.allowed.visit_forbidden(
      vocab, [logits](TokenId id) { logits[id] = -std::numeric_limits<float>::infinity(); });
}

/// Calls visit(id) for every forbidden and every biased token.
template <class Visit>
void visit_edited(const LogitEdits& edits, std::size_t vocab, const Visit& visit) {
  edits.allowed.visit_forbidden(vocab, visit);
  for (std::size_t b = 0; b < edits.bias_count; ++b) visit(edits.bias[b].id);
}

/// Makes a bound −∞, below all others. Its radius may be infinite, and −∞ + ∞ is below nothing.
inline void leave_out(float& estimate, float& radius) {
  estimate = -std::numeric_limits<float>::infinity();
  radius = 0.0F;
}

/// Makes what estimates the logits of forbidden and of biased tokens −∞: it would mean nothing.
inline void leave_out_edited(const LogitEdits& edits, std::size_t vocab, float* estimates) {
  visit_edited(edits, vocab,
               [estimates](TokenId id) { estimates[id] = -std::numeric_limits<float>::infinity(); });
}

/// The same of bounds.
inline void leave_out_edited(const LogitEdits& edits, std::size_t vocab, float* estimates, float* radii) {
  visit_edited(edits, vocab, [=](TokenId id) { leave_out(estimates[id], radii[id]); });
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
