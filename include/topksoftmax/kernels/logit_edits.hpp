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

  /// That of a token; null where it has none.
  const TokenBias* bias_of(TokenId id) const {
    const TokenBias* const end = bias + bias_count;
    const TokenBias* const found =
        std::lower_bound(bias, end, id, [](const TokenBias& one, TokenId of) { return one.id < of; });
    return found != end && found->id == id ? found : nullptr;
  }
};

/// A computed logit with a query's bias added, kept finite.
inline float add_bias(float logit, float bias) {
  const float x = logit + bias;
  constexpr float limit = std::numeric_limits<float>::max();
  return x > limit ? limit : x < -limit ? -limit : x;
}

/// Calls leave_out(token) for every forbidden token.
template <class LeaveOut>
void forbid(const LogitEdits& edits, std::size_t vocab, const LeaveOut& leave_out) {
  if (edits.allowed.empty()) return;
  for (std::size_t token = 0; token < vocab; ++token) {
    if (!edits.allows(static_cast<TokenId>(token))) leave_out(token);
  }
}

/// Applies the edits to the logits of all tokens; a forbidden one becomes −∞.
inline void apply_edits(const LogitEdits& edits, std::size_t vocab, float* logits) {
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    float& logit = logits[edits.bias[b].id];
    logit = add_bias(logit, edits.bias[b].bias);
  }
  forbid(edits, vocab,
         [logits](std::size_t token) { logits[token] = -std::numeric_limits<float>::infinity(); });
}

/// Calls leave_out(token) for every forbidden and every biased token.
template <class LeaveOut>
void for_each_edited(const LogitEdits& edits, std::size_t vocab, const LeaveOut& leave_out) {
  forbid(edits, vocab, leave_out);
  for (std::size_t b = 0; b < edits.bias_count; ++b) leave_out(static_cast<std::size_t>(edits.bias[b].id));
}

/// Makes what estimates the logits of forbidden and of biased tokens −∞: it would mean nothing.
inline void leave_out_edited(const LogitEdits& edits, std::size_t vocab, float* estimates) {
  for_each_edited(edits, vocab,
                  [=](std::size_t token) { estimates[token] = -std::numeric_limits<float>::infinity(); });
}

/// The same of bounds: a radius may be infinite, and −∞ + ∞ is below nothing.
inline void leave_out_edited(const LogitEdits& edits, std::size_t vocab, float* estimates, float* radii) {
  for_each_edited(edits, vocab, [=](std::size_t token) {
    estimates[token] = -std::numeric_limits<float>::infinity();
    radii[token] = 0.0F;
  });
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
