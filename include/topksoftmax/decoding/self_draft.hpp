// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/speculative.hpp"
#include "topksoftmax/export.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// Writes the context h [d] of the token after `tokens`. It is asked for growing texts; after a rejected
/// draft the text has a new token in the draft's place, and a model that keeps states goes back to the one
/// before it.
using ContextModel = std::function<void(std::span<const TokenId> tokens, float* h)>;

struct SelfDraftOptions {
  SamplingOptions sampling = {};  ///< of the text, and of the drafts
  SpeculativeOptions speculative = {};
  /// Drafts are drawn from all candidates of the approximate head, or, if it has no list of them or the query
  /// has a mask or biases, from so many of its best tokens.
  std::size_t draft_tokens = 64;
  QueryOptions query = {};  ///< mask, biases and effort, for drafts and verification alike
};

/// Speculative sampling with one model and two heads: an approximate head drafts K tokens, then the full
/// softmax of its layer verifies their K + 1 contexts in one batched pass. W is read once for them all
/// instead of once for each token, and the text is distributed exactly as the layer's full softmax (with the
/// sampling options) says: what the approximate head misses costs time alone.
///
/// Worth it where reading W is what a token costs. Throws std::invalid_argument as query, check() and
/// speculative_sample do; what the model throws passes through.
///
/// Cost of a round: K + 1 contexts, K queries of the head, V·d weights once, (K + 1)·V·d multiply-adds, and V
/// exponentials for each draft that is looked at.
TOPKSOFTMAX_EXPORT SpeculativeReport self_draft(std::vector<TokenId>& tokens, std::size_t count,
                                                const TopKSoftmax& head, const ContextModel& model,
                                                RandomStream& random, const SelfDraftOptions& options = {});

}  // namespace topksoftmax
