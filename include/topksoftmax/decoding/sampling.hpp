// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/kept_logits.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/ranked_tokens.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/weights.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

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
Distribution distribution_of(const TopK& answer, const SamplingOptions& options);

/// The distribution that logits of tokens 0, 1, … (−∞: forbidden) make. Throws std::invalid_argument as
/// check() does and where no logit is finite. Cost: V exponentials; with top_k, top_p or min_p the selection
/// of the tokens that stay.
Distribution distribution_of(std::span<const float> logits, const SamplingOptions& options);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Tokens that a head is asked for at first, each time it was too few so many times more, and at most.
inline constexpr std::size_t kFirstTokens = 64;
inline constexpr std::size_t kTokensGrowth = 8;
inline constexpr std::size_t kMostTokens = 512;

/// A token that stays, with its probability.
inline SampledToken sampled(TokenId id, float logit, double weight, const Kept& kept) {
  const double sum = sum_of(kept.weights);
  SampledToken token = {.id = id, .logit = logit};
  token.log_prob_low = std::log(weight / (sum + kept.outside_high));
  token.log_prob_high = std::log(weight / (sum + kept.outside_low));
  token.log_prob = 0.5 * (token.log_prob_low + token.log_prob_high);
  return token;
}

/// The leading ranked tokens and their weights, ordered by id.
inline Distribution by_id(std::span<const TokenId> ids, std::span<const double> weights) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [ids](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
  std::vector<TokenId> sorted_ids;
  std::vector<double> sorted_weights;
  for (const std::size_t i : order) {
    sorted_ids.push_back(ids[i]);
    sorted_weights.push_back(weights[i]);
  }
  return Distribution::of_some(std::move(sorted_ids), std::move(sorted_weights));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  check(options);
}

inline SampledToken Sampler::draw(const TopKSoftmax& head, const float* h, std::size_t dim,
                                  RandomStream& random, const QueryOptions& query) {
  const double u = random.uniform();
  const bool greedy = options_.temperature == 0.0;
  if (!greedy && (head.exhaustive() || !head.certifies())) return draw_from_all(head, h, dim, u, query);

  QueryOptions asked = query;
  asked.log_z_tolerance = std::numeric_limits<double>::infinity();
  asked.probabilities = !greedy && options_.top_k == 0 && (options_.top_p < 1.0 || options_.min_p == 0.0);
  asked.k = greedy ? 1 : options_.top_k != 0 ? options_.top_k : detail::kFirstTokens;
  // More tokens help where a cut needs no log Z; where it does, the interval's width decides, not their
  // number.
  const std::size_t most =
      std::max(asked.k, asked.probabilities ? detail::kFirstTokens : detail::kMostTokens);
  const kernels::LogitEdits edits = {.allowed = query.allowed.empty() ? nullptr : query.allowed.data()};
  for (; asked.k <= most; asked.k *= detail::kTokensGrowth) {
    head.query(h, dim, asked, workspace_, answer_);
    if (answer_.size() == 0) throw std::invalid_argument("sampling: no token is allowed");
    if (greedy) return {.id = answer_.ids.front(), .logit = answer_.logits.front()};
    // Not before the query has found the mask to be long enough.
    const std::size_t total = edits.count_allowed(head.layer().vocab());
    const detail::RankedTokens tokens = detail::ranked_tokens(answer_, total, options_.temperature);
    const std::optional<detail::Kept> kept = detail::keep(tokens, options_);
    if (!kept) continue;
    const std::optional<std::size_t> at = detail::find(*kept, u);
    if (!at) break;
    return detail::sampled(answer_.ids[*at], answer_.logits[*at], kept->weights[*at], *kept);
  }
  return draw_from_all(head, h, dim, u, query);
}

inline SampledToken Sampler::draw_from_all(const TopKSoftmax& head, const float* h, std::size_t dim, double u,
                                           const QueryOptions& query) {
  ++full_scans_;
  return detail::KeptLogits(head.logits_batch(h, 1, dim, dim, query, workspace_), options_).draw(u);
}

inline Distribution distribution_of(const TopK& answer, const SamplingOptions& options) {
  check(options);
  if (answer.size() == 0) throw std::invalid_argument("distribution_of: the answer has no token");
  if (options.temperature == 0.0) return Distribution::certain(answer.ids.front());
  const detail::Kept kept = *detail::keep({.logits = answer.logits, .total = answer.size()}, options);
  return detail::by_id(answer.ids, kept.weights);
}

inline Distribution distribution_of(std::span<const float> logits, const SamplingOptions& options) {
  check(options);
  return detail::KeptLogits(logits, options).distribution();
}

}  // namespace TOPKSOFTMAX_NAMESPACE
