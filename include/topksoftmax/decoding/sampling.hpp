// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/kept_logits.hpp"
#include "topksoftmax/decoding/leader.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/staying.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/decoding/weights.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/sampled_log_z.hpp"
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
/// top_k and min_p take none either. top_p and XTC do: its bounds tell of most draws whether the token stays.
/// Where they do not, and where too many tokens would have to be scored, more of the best tokens are asked
/// for, and in the end the logits of all. typical_p and top_n_sigma look at every token that is left: unless
/// top_k has left few, they take the logits of all. Backends that cannot prove their answers are asked for a
/// greedy choice alone, which is theirs: for any other draw they take the logits of all tokens. To draw from
/// what such a backend itself answers, see distribution_of.
///
/// "Exactly" is within rounding: of float32 logits, and 10⁻⁶ of probabilities; with
/// SamplingOptions::log_z_error within that.
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
  /// What is to be known of the tokens that no answer lists, to tell what stays.
  enum class Needed { nothing, log_z, logits };

  bool excludes(const TokenGumbels& gumbels) const { return gumbels.coin() < options_.xtc_probability; }
  Needed needed(bool excludes) const;
  double sampled_log_z(const TopKSoftmax& head, std::span<const float> h, const QueryOptions& query,
                       double temperature, std::uint64_t seed);
  detail::Bounds outside_of_sampled(double log_z, double temperature) const;
  double log_weight(float logit) const;
  std::size_t meet_listed(const TokenGumbels& gumbels, const detail::Staying& stay,
                          detail::Leader& leader) const;
  bool meet_others(const TopKSoftmax& head, std::span<const float> h, const TokenGumbels& gumbels,
                   const QueryOptions& query, double lowest, detail::Leader& leader);
  SampledToken with_probability(const ScoredToken& drawn, const detail::Staying& stay) const;

  SamplingOptions options_;
  Workspace workspace_;
  TopK answer_;
  std::vector<TokenId> ids_;  ///< tokens that are scored beside an answer's …
  std::vector<double> gumbels_;
  std::vector<float> logits_;
  std::vector<std::pair<double, double>> log_zs_;  ///< of this draw, by temperature, where they are sampled
  std::size_t full_scans_ = 0;
  std::size_t trials_ = 0;
};

/// The distribution over an answer's own tokens: all others have none, whatever their probability. What a
/// draft model draws from, and who takes an approximate head at its word. Of what XTC leaves and of what it
/// would leave without acting it is the mixture. Throws std::invalid_argument as check() does and for an
/// answer without tokens.
Distribution distribution_of(const TopK& answer, const SamplingOptions& options);

/// The same of logits of tokens 0, 1, … (−∞: forbidden). Throws std::invalid_argument as check() does and
/// where no logit is finite. Cost: V exponentials, and the selection of the tokens that stay.
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

/// The distribution that the options make of logits, by their places.
inline Distribution distribution_by_place(std::span<const float> logits, const SamplingOptions& options) {
  if (options.temperature == 0.0 || options.xtc_probability == 0.0)
    return KeptLogits(logits, options, false).distribution();
  const KeptLogits with(logits, options, true);
  if (options.xtc_probability == 1.0) return with.distribution();
  const KeptLogits without(logits, options, false);
  std::vector<double> weights(logits.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    weights[i] = options.xtc_probability * with[id] + (1.0 - options.xtc_probability) * without[id];
  }
  return Distribution::of_all(std::move(weights));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  check(options);
}

/// Once the k best are taken, the others do not count any more.
inline Sampler::Needed Sampler::needed(bool excludes) const {
  Needed needed = Needed::nothing;
  for (const SamplingStep step : options_.order.steps) {
    if (!detail::cuts(options_, step)) continue;
    if (step == SamplingStep::top_k) break;
    if (step == SamplingStep::typical_p || step == SamplingStep::top_n_sigma) return Needed::logits;
    if (step == SamplingStep::top_p || (step == SamplingStep::xtc && excludes)) needed = Needed::log_z;
  }
  return needed;
}

inline SampledToken Sampler::draw(const TopKSoftmax& head, const float* h, std::size_t dim,
                                  RandomStream& random, const QueryOptions& query) {
  const std::uint64_t key = random.bits();
  const TokenGumbels gumbels(key);
  const std::span<const float> context(h, dim);
  const bool greedy = options_.temperature == 0.0;
  const bool excluding = excludes(gumbels);
  const Needed needed = this->needed(excluding);
  if (!greedy && (head.exhaustive() || !head.certifies() || needed == Needed::logits)) {
    return draw_from_all(head, context, gumbels, query);
  }
  QueryOptions asked = query;
  asked.log_z_tolerance = std::numeric_limits<double>::infinity();
  asked.probabilities = !greedy && (needed == Needed::log_z || (options_.top_k == 0 && query.probabilities));
  asked.k = greedy ? 1 : options_.top_k != 0 ? options_.top_k : detail::kFirstTokens;
  const std::size_t rows = head.rows();
  log_zs_.clear();
  bool sampled = false;
  for (bool scanned = false;; asked.k *= detail::kTokensGrowth) {
    head.query(context, asked, workspace_, answer_);
    scanned |= answer_.work.candidates == rows;
    if (answer_.size() == 0) throw std::invalid_argument("sampling: no token is allowed");
    if (greedy) return {.id = answer_.ids.front(), .logit = answer_.logits.front()};
    // Not before the query has found the mask to be long enough.
    const std::size_t total = head.count_allowed(query.allowed);
    const detail::Staying stay =
        detail::staying(answer_, total, options_, excluding, [&](double temperature) {
          if (!sampled) return detail::outside_weights(answer_, total, temperature);
          return outside_of_sampled(sampled_log_z(head, context, query, temperature, key), temperature);
        });
    if (stay.decided) {
      detail::Leader leader;
      const std::size_t place = meet_listed(gumbels, stay, leader);
      const TokenId listed = leader.token.id;
      const bool met = !stay.others || meet_others(head, context, gumbels, query, stay.lowest, leader);
      const bool stays = leader.token.id == listed ? place < stay.sure : stay.others_sure;
      if (met && stays) {
        full_scans_ += scanned ? 1 : 0;
        return with_probability(leader.token, stay);
      }
    }
    const std::size_t most = sampled ? rows / detail::kTrialShare : detail::kMostTokens;
    if (scanned || asked.k >= most) return draw_from_all(head, context, gumbels, query);
    sampled = needed == Needed::log_z && options_.log_z_error > 0.0;
    asked.probabilities &= !sampled;
  }
}

/// log Z at a temperature from a sample, which a draw takes once; infinite where the head cannot sample it.
inline double Sampler::sampled_log_z(const TopKSoftmax& head, std::span<const float> h,
                                     const QueryOptions& query, double temperature, std::uint64_t seed) {
  for (const auto& [of, log_z] : log_zs_) {
    if (of == temperature) return log_z;
  }
  const SampledLogZOptions how = {.error = options_.log_z_error, .temperature = temperature, .seed = seed};
  const std::optional<SampledLogZ> found = head.sample_log_z(h, how, query, workspace_);
  log_zs_.emplace_back(temperature, found ? found->log_z : std::numeric_limits<double>::infinity());
  return log_zs_.back().second;
}

/// The weights of all tokens that the answer does not list.
inline detail::Bounds Sampler::outside_of_sampled(double log_z, double temperature) const {
  if (std::isinf(log_z)) return {0.0, log_z};
  const double best = static_cast<double>(answer_.logits.front());
  double inside = 0.0;
  for (const float logit : answer_.logits) inside += std::exp(detail::tempered(logit, best, temperature));
  const double outside = std::max(0.0, std::exp(log_z - best / temperature) - inside);
  return {outside, outside};
}

/// The logarithm of a token's weight.
inline double Sampler::log_weight(float logit) const {
  return detail::tempered(logit, answer_.logits.front(), options_.temperature);
}

/// Offers the answer's tokens that may stay; returns the place of the one that leads.
inline std::size_t Sampler::meet_listed(const TokenGumbels& gumbels, const detail::Staying& stay,
                                        detail::Leader& leader) const {
  std::size_t place = stay.first;
  for (std::size_t i = stay.first; i < stay.possible; ++i) {
    const ScoredToken token = {answer_.logits[i], answer_.ids[i]};
    if (leader.offer(log_weight(token.logit) + gumbels[token.id], token)) place = i;
  }
  return place;
}

/// Offers the tokens that are not in the answer, as far as their Gumbels let them win. False where they are
/// too many to be scored.
inline bool Sampler::meet_others(const TopKSoftmax& head, std::span<const float> h,
                                 const TokenGumbels& gumbels, const QueryOptions& query, double lowest,
                                 detail::Leader& leader) {
  const std::size_t rows = head.rows();
  const RowMap* const row_map = head.row_map().get();
  const ScoredToken last = {answer_.logits.back(), answer_.ids.back()};
  const double limit = leader.score - log_weight(last.logit);
  const std::size_t most = std::min(rows / detail::kTrialShare, detail::kTrialsOfToken * answer_.size());
  if (static_cast<double>(rows) * std::exp(-limit) > static_cast<double>(most)) return false;
  ids_.clear();
  gumbels_.clear();
  gumbels.visit_above(limit, head.vocab(), [this, row_map](TokenId id, double gumbel) {
    if (row_map != nullptr && row_map->row_of(id) == RowMap::none) return;
    ids_.push_back(id);
    gumbels_.push_back(gumbel);
  });
  logits_.resize(ids_.size());
  head.logits_of(h, ids_, query, workspace_, logits_);
  trials_ += ids_.size();
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const ScoredToken token = {logits_[i], ids_[i]};
    const bool other = ranks_before(last, token) && token.logit != detail::kForbidden;
    if (!other || static_cast<double>(token.logit) < lowest) continue;
    leader.offer(log_weight(token.logit) + gumbels_[i], token);
  }
  return true;
}

/// A token that was drawn, with its probability among those that stay.
inline SampledToken Sampler::with_probability(const ScoredToken& drawn, const detail::Staying& stay) const {
  const double log_of_weight =
      detail::tempered(drawn.logit, answer_.logits[stay.first], options_.temperature);
  SampledToken token = {.id = drawn.id, .logit = drawn.logit};
  token.log_prob_low = log_of_weight - std::log(stay.mass.high);
  token.log_prob_high = std::min(0.0, log_of_weight - std::log(stay.mass.low));
  // The answer estimates log Z where nothing was cut; between bounds alone, the middle is as good as any.
  const bool uncut = stay.others_sure && stay.first == 0 && stay.lowest == detail::kNoScore;
  const bool estimated = uncut && options_.temperature == 1.0 && answer_.normalizer != Normalizer::none;
  const double middle = 0.5 * (token.log_prob_low + token.log_prob_high);
  const double estimate = estimated ? static_cast<double>(drawn.logit) - answer_.log_z : middle;
  token.log_prob = std::clamp(estimate, token.log_prob_low, token.log_prob_high);
  return token;
}

inline SampledToken Sampler::draw_from_all(const TopKSoftmax& head, std::span<const float> h,
                                           const TokenGumbels& gumbels, const QueryOptions& query) {
  ++full_scans_;
  const std::span<const float> logits = head.logits_batch(h.data(), 1, h.size(), h.size(), query, workspace_);
  return detail::KeptLogits(logits, options_, excludes(gumbels)).draw(gumbels);
}

inline Distribution distribution_of(const TopK& answer, const SamplingOptions& options) {
  check(options);
  if (answer.size() == 0) throw std::invalid_argument("distribution_of: the answer has no token");
  const Distribution by_place = detail::distribution_by_place(answer.logits, options);
  std::vector<std::pair<TokenId, double>> tokens;
  for (std::size_t i = 0; i < by_place.size(); ++i) {
    const auto place = static_cast<std::size_t>(by_place.id(i));
    tokens.emplace_back(answer.ids[place], by_place.probabilities()[i]);
  }
  std::sort(tokens.begin(), tokens.end());
  std::vector<TokenId> ids;
  std::vector<double> weights;
  for (const auto& [id, weight] : tokens) {
    ids.push_back(id);
    weights.push_back(weight);
  }
  return Distribution::of_some(std::move(ids), std::move(weights));
}

inline Distribution distribution_of(std::span<const float> logits, const SamplingOptions& options) {
  check(options);
  return detail::distribution_by_place(logits, options);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
