// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "topksoftmax/types.hpp"

namespace topksoftmax::kernels {

/// What a query changes in the logits: a mask and biases (QueryOptions), in plain pointers.
struct LogitEdits {
  const std::uint64_t* allowed = nullptr;  ///< a bit a token, or null: all allowed
  const TokenBias* bias = nullptr;         ///< ids strictly ascending
  std::size_t bias_count = 0;

  bool empty() const { return allowed == nullptr && bias_count == 0; }

  bool allows(TokenId id) const {
    const auto t = static_cast<std::size_t>(id);
    return allowed == nullptr || (allowed[t / 64] >> (t % 64) & 1) != 0;
  }
};

/// A computed logit with a query's bias added, kept finite.
inline float add_bias(float logit, float bias) {
  const float x = logit + bias;
  constexpr float limit = std::numeric_limits<float>::max();
  return x > limit ? limit : x < -limit ? -limit : x;
}

}  // namespace topksoftmax::kernels
