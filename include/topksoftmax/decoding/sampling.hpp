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
#include "topksoftmax/decoding/leader.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/ranked_tokens.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
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
/// Of the tokens that the options leave, that with the largest logit/temperature + Gumbel is drawn
/// (TokenGumbels, fixed by one number of the stream): the same one whatever backend is asked, on however many
/// threads. A backend whose answers are all certified is asked for its best tokens; the others' logits are
/// below those of these, so only tokens whose Gumbels are large enough to beat the best score so far are
/// scored beside them, some tens (Mussmann et al., UAI 2017, with a proven bound). That takes no log Z, and
/// top_k and min_p take none either. top_p does: its bounds tell of most draws whether the token is in the
/// nucleus. Where they do not, and where too many tokens would have to be scored, more of the best tokens are
/// asked for, and in the end the logits of all. Backends that cannot prove their answers are asked for a
/// greedy choice alone, which is theirs: for any other draw they take the logits of all tokens. To draw from
/// what such a backend itself answers, see distribution_of.
///
/// "Exactly" is within rounding: of float32 logits, and 10⁻⁶ of probabilities.
class TOPKSOFTMAX_EXPORT Sampler {
 public:
  /// Throws std::invalid_argument as check() does.
  explicit Sampler(const SamplingOptions& options = {});

  /// Draws the token after the context h [d]. Of `query` the mask, the biases and the effort count, and
  /// whether probabilities are wanted: without, the bounds of SampledToken::log_prob are as wide as the draw
  /// left them. Throws std::invalid_argument as a query does, and where no token is allowed.
  ///
  /// Cost: a query for 8 tokens (or top_k), V/16 random numbers and some tens of rows of d weights; in the
  /// cases above, queries for 32 and 128 tokens, and V·d weights with V exponentials.
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

  /// How many tokens were scored in all beside those of answers and those of full scans.
  std::size_t trials() const { return trials_; }

 private:
  SampledToken draw_from_all(const TopKSoftmax& head, std::span<const float> h, const TokenGumbels& gumbels,
                             const QueryOptions& query);
  double log_weight(float logit) const;
  std::size_t meet_listed(const TokenGumbels& gumbels, std::size_t count, detail::Leader& leader) const;
  bool meet_others(const TopKSoftmax& head, std::span<const float> h, const TokenGumbels& gumbels,
                   const QueryOptions& query, detail::Leader& leader);
  SampledToken with_probability(const ScoredToken& drawn, const detail::Staying& stay,
                                std::size_t total) const;

  SamplingOptions options_;
  Workspace workspace_;
  TopK answer_;
  std::vector<TokenId> ids_;  ///< tokens that are scored beside an answer's …
  std::vector<double> gumbels_;
  std::vector<float> logits_;
  std::size_t full_scans_ = 0;
  std::size_t trials_ = 0;
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
inline constexpr std::size_t kFirstTokens = 8;
inline constexpr std::size_t kTokensGrowth = 4;
inline constexpr std::size_t kMostTokens = 128;

/// More tokens than this share of the vocabulary are not scored one by one, and no more than so many for each
/// that the answer has: a longer answer costs less then.
inline constexpr std::size_t kTrialShare = 16;
inline constexpr std::size_t kTrialsOfToken = 16;

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
  const TokenGumbels gumbels(random.bits());
  const std::span<const float> context(h, dim);
  const bool greedy = options_.temperature == 0.0;
  if (!greedy && (head.exhaustive() || !head.certifies())) {
    return draw_from_all(head, context, gumbels, query);
  }
  QueryOptions asked = query;
  asked.log_z_tolerance = std::numeric_limits<double>::infinity();
  const bool nucleus = options_.top_p < 1.0 && options_.top_k == 0;
  asked.probabilities = !greedy && options_.top_k == 0 && (nucleus || query.probabilities);
  asked.k = greedy ? 1 : options_.top_k != 0 ? options_.top_k : detail::kFirstTokens;
  const std::size_t vocab = head.layer().vocab();
  const kernels::LogitEdits edits = {.allowed = query.allowed.empty() ? nullptr : query.allowed.data()};
  for (bool scanned = false;; asked.k *= detail::kTokensGrowth) {
    head.query(context, asked, workspace_, answer_);
    scanned |= answer_.work.candidates == vocab;
    if (answer_.size() == 0) throw std::invalid_argument("sampling: no token is allowed");
    if (greedy) return {.id = answer_.ids.front(), .logit = answer_.logits.front()};
    // Not before the query has found the mask to be long enough.
    const std::size_t total = edits.count_allowed(vocab);
    const double temperature = detail::cutting_temperature(options_);
    const detail::Staying stay =
        detail::staying(detail::ranked_tokens(answer_, total, temperature), options_);
    detail::Leader leader;
    const std::size_t place = meet_listed(gumbels, stay.possible, leader);
    const TokenId listed = leader.token.id;
    const bool met = !stay.others || meet_others(head, context, gumbels, query, leader);
    const bool stays = leader.token.id == listed ? place < stay.sure : stay.others_sure;
    if (met && stays) {
      full_scans_ += scanned ? 1 : 0;
      return with_probability(leader.token, stay, total);
    }
    if (scanned || asked.k >= detail::kMostTokens) return draw_from_all(head, context, gumbels, query);
  }
}

/// The logarithm of a token's weight.
inline double Sampler::log_weight(float logit) const {
  return detail::tempered(logit, answer_.logits.front(), options_.temperature);
}

/// Offers the answer's first `count` tokens; returns the place of the one that leads.
inline std::size_t Sampler::meet_listed(const TokenGumbels& gumbels, std::size_t count,
                                        detail::Leader& leader) const {
  std::size_t place = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const ScoredToken token = {answer_.logits[i], answer_.ids[i]};
    if (leader.offer(log_weight(token.logit) + gumbels[token.id], token)) place = i;
  }
  return place;
}

/// Offers the tokens that are not in the answer, as far as their Gumbels let them win. False where they are
/// too many to be scored.
inline bool Sampler::meet_others(const TopKSoftmax& head, std::span<const float> h,
                                 const TokenGumbels& gumbels, const QueryOptions& query,
                                 detail::Leader& leader) {
  const std::size_t vocab = head.layer().vocab();
  const ScoredToken last = {answer_.logits.back(), answer_.ids.back()};
  const double limit = leader.score - log_weight(last.logit);
  const std::size_t most = std::min(vocab / detail::kTrialShare, detail::kTrialsOfToken * answer_.size());
  if (static_cast<double>(vocab) * std::exp(-limit) > static_cast<double>(most)) return false;
  ids_.clear();
  gumbels_.clear();
  gumbels.visit_above(limit, vocab, [this](TokenId id, double gumbel) {
    ids_.push_back(id);
    gumbels_.push_back(gumbel);
  });
  logits_.resize(ids_.size());
  head.logits_of(h, ids_, query, workspace_, logits_);
  trials_ += ids_.size();
  const double lowest =
      options_.min_p > 0.0 ? detail::lowest_logit(answer_.logits.front(), options_) : detail::kNoScore;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const ScoredToken token = {logits_[i], ids_[i]};
    const bool other = ranks_before(last, token) && token.logit != detail::kForbidden;
    if (!other || static_cast<double>(token.logit) < lowest) continue;
    leader.offer(log_weight(token.logit) + gumbels_[i], token);
  }
  return true;
}

/// A token that was drawn, with its probability among those that stay.
inline SampledToken Sampler::with_probability(const ScoredToken& drawn, const detail::Staying& stay,
                                              std::size_t total) const {
  const std::span<const float> listed = std::span(answer_.logits).first(stay.possible);
  const std::vector<double> weights =
      detail::weights_of(listed, answer_.logits.front(), options_.temperature);
  double least = detail::sum_of(std::span(weights).first(stay.sure));
  double most = detail::sum_of(weights);
  // Others, of which min-p may leave any part.
  const bool all_others = stay.others_sure && options_.min_p == 0.0;
  if (stay.others) {
    const detail::RankedTokens tokens = detail::ranked_tokens(answer_, total, options_.temperature);
    if (all_others) least += tokens.outside_low;
    most += tokens.outside_high;
  }
  const double log_of_weight = log_weight(drawn.logit);
  SampledToken token = {.id = drawn.id, .logit = drawn.logit};
  token.log_prob_low = log_of_weight - std::log(most);
  token.log_prob_high = std::min(0.0, log_of_weight - std::log(least));
  // The answer estimates log Z where nothing was cut; between bounds alone, the middle is as good as any.
  const bool whole = all_others && options_.temperature == 1.0;
  const bool estimated = whole && answer_.normalizer != Normalizer::none;
  const double middle = 0.5 * (token.log_prob_low + token.log_prob_high);
  const double estimate = estimated ? static_cast<double>(drawn.logit) - answer_.log_z : middle;
  token.log_prob = std::clamp(estimate, token.log_prob_low, token.log_prob_high);
  return token;
}

inline SampledToken Sampler::draw_from_all(const TopKSoftmax& head, std::span<const float> h,
                                           const TokenGumbels& gumbels, const QueryOptions& query) {
  ++full_scans_;
  const std::span<const float> logits = head.logits_batch(h.data(), 1, h.size(), h.size(), query, workspace_);
  return detail::KeptLogits(logits, options_).draw(gumbels);
}

inline Distribution distribution_of(const TopK& answer, const SamplingOptions& options) {
  check(options);
  if (answer.size() == 0) throw std::invalid_argument("distribution_of: the answer has no token");
  if (options.temperature == 0.0) return Distribution::certain(answer.ids.front());
  const detail::Staying stay = detail::staying({.logits = answer.logits, .total = answer.size()}, options);
  const std::span<const float> logits = std::span(answer.logits).first(stay.possible);
  return detail::by_id(answer.ids, detail::weights_of(logits, answer.logits.front(), options.temperature));
}

inline Distribution distribution_of(std::span<const float> logits, const SamplingOptions& options) {
  check(options);
  return detail::KeptLogits(logits, options).distribution();
}

}  // namespace TOPKSOFTMAX_NAMESPACE
