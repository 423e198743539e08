// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "decoding/kept_logits.hpp"
#include "decoding/ranked_tokens.hpp"
#include "decoding/weights.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"

namespace topksoftmax {
namespace {

/// Tokens that a head is asked for at first, each time it was too few so many times more, and at most.
constexpr std::size_t kFirstTokens = 64;
constexpr std::size_t kTokensGrowth = 8;
constexpr std::size_t kMostTokens = 512;

/// Their reciprocals, and a logit's distance times these, must stay within the floats, and above 0.
constexpr double kLeastTemperature = 1e-30;
constexpr double kMostTemperature = 1e30;

void refuse(const std::string& name, double value, const std::string& limit) {
  throw std::invalid_argument("sampling: " + name + " is " + std::to_string(value) + "; it must be " + limit);
}

/// A token that stays, with its probability.
SampledToken sampled(TokenId id, float logit, double weight, const Kept& kept) {
  const double sum = sum_of(kept.weights);
  SampledToken token = {.id = id, .logit = logit};
  token.log_prob_low = std::log(weight / (sum + kept.outside_high));
  token.log_prob_high = std::log(weight / (sum + kept.outside_low));
  token.log_prob = 0.5 * (token.log_prob_low + token.log_prob_high);
  return token;
}

/// The leading ranked tokens and their weights, ordered by id.
Distribution by_id(std::span<const TokenId> ids, std::span<const double> weights) {
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

}  // namespace

void check(const SamplingOptions& options) {
  const bool tempered = options.temperature >= kLeastTemperature && options.temperature <= kMostTemperature;
  if (!tempered && options.temperature != 0.0) {
    refuse("temperature", options.temperature, "0 (greedy), or from 1e-30 to 1e30");
  }
  if (!(options.top_p > 0.0 && options.top_p <= 1.0)) refuse("top_p", options.top_p, "above 0 and at most 1");
  if (!(options.min_p >= 0.0 && options.min_p <= 1.0)) refuse("min_p", options.min_p, "between 0 and 1");
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  check(options);
}

SampledToken Sampler::draw(const TopKSoftmax& head, const float* h, std::size_t dim, RandomStream& random,
                           const QueryOptions& query) {
  const double u = random.uniform();
  const bool greedy = options_.temperature == 0.0;
  if (!greedy && (head.exhaustive() || !head.certifies())) return draw_from_all(head, h, dim, u, query);

  QueryOptions asked = query;
  asked.log_z_tolerance = std::numeric_limits<double>::infinity();
  asked.probabilities = !greedy && options_.top_k == 0 && (options_.top_p < 1.0 || options_.min_p == 0.0);
  asked.k = greedy ? 1 : options_.top_k != 0 ? options_.top_k : kFirstTokens;
  // More tokens help where a cut needs no log Z; where it does, the interval's width decides, not their
  // number.
  const std::size_t most = std::max(asked.k, asked.probabilities ? kFirstTokens : kMostTokens);
  const kernels::LogitEdits edits = {.allowed = query.allowed.empty() ? nullptr : query.allowed.data()};
  for (; asked.k <= most; asked.k *= kTokensGrowth) {
    head.query(h, dim, asked, workspace_, answer_);
    if (answer_.size() == 0) throw std::invalid_argument("sampling: no token is allowed");
    if (greedy) return {.id = answer_.ids.front(), .logit = answer_.logits.front()};
    // Not before the query has found the mask to be long enough.
    const std::size_t total = edits.count_allowed(head.layer().vocab());
    const RankedTokens tokens = ranked_tokens(answer_, total, options_.temperature);
    const std::optional<Kept> kept = keep(tokens, options_);
    if (!kept) continue;
    const std::optional<std::size_t> at = find(*kept, u);
    if (!at) break;
    return sampled(answer_.ids[*at], answer_.logits[*at], kept->weights[*at], *kept);
  }
  return draw_from_all(head, h, dim, u, query);
}

SampledToken Sampler::draw_from_all(const TopKSoftmax& head, const float* h, std::size_t dim, double u,
                                    const QueryOptions& query) {
  ++full_scans_;
  return KeptLogits(head.logits_batch(h, 1, dim, dim, query, workspace_), options_).draw(u);
}

Distribution distribution_of(const TopK& answer, const SamplingOptions& options) {
  check(options);
  if (answer.size() == 0) throw std::invalid_argument("distribution_of: the answer has no token");
  if (options.temperature == 0.0) return Distribution::certain(answer.ids.front());
  const Kept kept = *keep({.logits = answer.logits, .total = answer.size()}, options);
  return by_id(answer.ids, kept.weights);
}

Distribution distribution_of(std::span<const float> logits, const SamplingOptions& options) {
  check(options);
  return KeptLogits(logits, options).distribution();
}

}  // namespace topksoftmax
