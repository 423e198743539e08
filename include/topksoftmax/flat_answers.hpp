// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Where the answers of a batch of B contexts are put, in flat memory of the caller. Answer q has `k` places
/// in ids and logits; places that it has no token for hold the id −1 and the logit −∞.
struct FlatAnswers {
  TokenId* ids = nullptr;             ///< [B×k], best first
  float* logits = nullptr;            ///< [B×k], or null: not wanted
  double* log_z = nullptr;            ///< [B], or null; NaN where probabilities were not asked for
  std::uint8_t* certified = nullptr;  ///< [B], 1 where the answer is proven, or null

  /// Puts answer q in its place.
  void store(std::size_t q, std::size_t k, const TopK& answer) const {
    const std::size_t count = std::min(k, answer.size());
    TokenId* const of_ids = ids + q * k;
    std::fill(std::copy_n(answer.ids.begin(), count, of_ids), of_ids + k, TokenId{-1});
    if (logits != nullptr) {
      float* const of_logits = logits + q * k;
      std::fill(std::copy_n(answer.logits.begin(), count, of_logits), of_logits + k,
                -std::numeric_limits<float>::infinity());
    }
    if (log_z != nullptr) log_z[q] = answer.log_z;
    if (certified != nullptr) certified[q] = answer.certified ? 1 : 0;
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE
