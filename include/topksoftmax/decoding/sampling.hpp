// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/export.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {

/// What is drawn from: each step acts on what the step before it left, renormalised, in this order (that of
/// Hugging Face's generate).
struct SamplingOptions {
  /// Logits are divided by it: 1e-30 to 1e30; 0: always the most probable token (greedy).
  double temperature = 1.0;
  std::size_t top_k = 0;  ///< the k most probable tokens stay; 0: all
  double top_p = 1.0;     ///< of these the nucleus: the fewest most probable whose probabilities reach top_p
  double min_p = 0.0;     ///< of these the ones at least min_p times as probable as the most probable
};

/// Throws std::invalid_argument unless temperature is 0 or from 1e-30 to 1e30, 0 < top_p ≤ 1 and
/// 0 ≤ min_p ≤ 1.
TOPKSOFTMAX_EXPORT void check(const SamplingOptions& options);

/// A token that was drawn.
struct SampledToken {
  TokenId id = 0;
  float logit = 0.0F;         ///< as the layer gives it, with the query's bias
  double log_prob = 0.0;      ///< of the distribution that was drawn from
  double log_prob_low = 0.0;  ///< proven bounds: equal to log_prob unless log Z was known as an interval only
  double log_prob_high = 0.0;  ///< likewise
};

/// Draws tokens from exactly the distribution that the layer has, whatever backend is asked.
///
/// One number u of the stream decides, by the inverse of the cumulative distribution in the order of answers
/// (the most probable token first), so that every backend gives the same token. A backend whose answers are
/// all certified is asked for its best tokens; if these and the bounds of log Z tell which token u falls on,
/// that is it: top_k and min_p need no log Z at all, top_p and none of them one that is close enough. If they
/// do not tell, it is the logits of all tokens. Backends that cannot prove their answers are asked for a
/// greedy choice alone, which is theirs. To draw from what such a backend itself answers, see
/// distribution_of.
///
/// "Exactly" is within rounding: of float32 logits, and 10⁻⁶ of probabilities.
class TOPKSOFTMAX_EXPORT Sampler {
 public:
  /// Throws std::invalid_argument as check() does.
  explicit Sampler(const SamplingOptions& options = {});

  /// Draws the token after the context h [d]. Of `query` the mask, the biases and the effort count. Throws
  /// std::invalid_argument as a query does, and where no token is allowed.
  ///
  /// Cost: a query for 64 tokens (or top_k), more of them, or V·d weights and V exponentials.
  SampledToken draw(const TopKSoftmax& head, const ConstVector& h, RandomStream& random,
                    const QueryOptions& query = {}) {
    return draw(head, h.data(), static_cast<std::size_t>(h.size()), random, query);
  }

  /// The same for a context in plain memory, `dim` floats at h.
  SampledToken draw(const TopKSoftmax& head, const float* h, std::size_t dim, RandomStream& random,
                    const QueryOptions& query = {});

  const SamplingOptions& options() const { return options_; }

  /// How many of the tokens drawn needed the logits of all tokens.
  std::size_t full_scans() const { return full_scans_; }

 private:
  SampledToken draw_from_all(const TopKSoftmax& head, const float* h, std::size_t dim, double u,
                             const QueryOptions& query);

  SamplingOptions options_;
  Workspace workspace_;
  TopK answer_;
  std::size_t full_scans_ = 0;
};

/// The distribution over an answer's own tokens: all others have none, whatever their probability. What a
/// draft model draws from, and who takes an approximate head at its word. Throws std::invalid_argument as
/// check() does and for an answer without tokens.
TOPKSOFTMAX_EXPORT Distribution distribution_of(const TopK& answer, const SamplingOptions& options);

/// The distribution that logits of tokens 0, 1, … (−∞: forbidden) make. Throws std::invalid_argument as
/// check() does and where no logit is finite. Cost: V exponentials; with top_k, top_p or min_p the selection
/// of the tokens that stay.
TOPKSOFTMAX_EXPORT Distribution distribution_of(std::span<const float> logits,
                                                const SamplingOptions& options);

}  // namespace topksoftmax
