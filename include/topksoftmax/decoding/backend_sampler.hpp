// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/candidates_edited.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/kept_logits.hpp"
#include "topksoftmax/decoding/leader.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/staying.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Draws tokens from the distribution that a backend itself has, where that is not the layer's (Sampler).
///
/// Its candidates have their exact logits. All other tokens have together the mass that its log Z counts for
/// them (Normalizer::learned, low_rank; none with Normalizer::candidates), shared among them as their own
/// logits say: one of them is drawn as often as that mass is, by a scan of the layer. Where top-k cuts first,
/// and there are k candidates, the k best are theirs, as in the backend's answers, and no other token comes.
/// A temperature and other cuts may depend on how the mass is shared; where its bounds do not decide, they
/// take a scan as well.
///
/// Heads that prove their answers, that score every token or that have no candidates are sampled as Sampler
/// samples them, and so is any head where it answers the same query from all allowed tokens: because a mask
/// allows few, or no more than k, or because fewer than k of its candidates are left. At a temperature of 0
/// the best token of an answer with k = 1 is drawn.
///
/// As good as the backend: an unlikely token that it leaves out is as likely as its log Z says, all of them
/// together, and with Normalizer::candidates none ever comes.
class TOPKSOFTMAX_EXPORT BackendSampler {
 public:
  /// Throws std::invalid_argument as check() does.
  explicit BackendSampler(const SamplingOptions& options = {}) : options_(options), exact_(options) {}

  /// Draws the token after the context h [d] with the probabilities that the backend's answer to this query
  /// has, whatever the number of threads. Of `query` k, the mask, the biases and the effort count. Throws
  /// std::invalid_argument as Sampler::draw does.
  ///
  /// Cost: the backend's screening, and candidates·d weights; for a scan V·d weights, some times V
  /// exponentials, and memory for several numbers of each token.
  SampledToken draw(const TopKSoftmax& head, const ConstVector& h, RandomStream& random,
                    const QueryOptions& query = {}) {
    return draw(head, h.data(), static_cast<std::size_t>(h.size()), random, query);
  }

  /// The same for a context in plain memory, `dim` floats at h.
  SampledToken draw(const TopKSoftmax& head, const float* h, std::size_t dim, RandomStream& random,
                    const QueryOptions& query = {}) {
    const auto own = draw_own(head, {h, dim}, random, query);
    return own ? *own : exact_.draw(head, h, dim, random, query);
  }

  /// The same on the executor's threads, as Sampler::draw.
  SampledToken draw(const TopKSoftmax& head, std::span<const float> h, RandomStream& random,
                    const QueryOptions& query, const Executor& executor) {
    const detail::LentCrew crew(workspace_, {&executor, executor.threads()});
    const auto own = draw_own(head, h, random, query);
    return own ? *own : exact_.draw(head, h, random, query, executor);
  }

  /// What draws are made by.
  const SamplingOptions& options() const { return options_; }

  /// How many of the tokens drawn needed the logits of all tokens.
  std::size_t full_scans() const { return full_scans_ + exact_.full_scans(); }

 private:
  /// Random numbers of a draw: those of candidates by their places, behind them that of all others together,
  /// and those of the others by their ids.
  struct Noise {
    TokenGumbels places;
    TokenGumbels others;
  };

  std::optional<SampledToken> draw_own(const TopKSoftmax& head, std::span<const float> h,
                                       RandomStream& random, const QueryOptions& query);
  bool find_candidates(const TopKSoftmax& head, std::span<const float> h, const QueryOptions& query);
  void score_candidates(const TopKSoftmax& head, std::span<const float> h, const Candidates& found,
                        const kernels::LogitEdits& edits);
  std::optional<SampledToken> draw_uncut(const Noise& noise, std::size_t total) const;
  std::optional<SampledToken> draw_cut(SamplingStep first_cut, const Noise& noise, std::size_t total) const;
  SampledToken draw_with_scan(const TopKSoftmax& head, std::span<const float> h, const Noise& noise,
                              const QueryOptions& query);
  bool excludes(const Noise& noise) const { return noise.places.coin() < options_.xtc_probability; }
  double best() const { return static_cast<double>(listed_.logits.front()); }
  detail::Bounds outside_at(double temperature, std::size_t others) const;
  std::size_t lead(const Noise& noise, std::size_t first, std::size_t end, double best,
                   detail::Leader& leader) const;
  SampledToken listed_token(std::size_t place, double log_weight, const detail::Bounds& log_sum) const;

  SamplingOptions options_;
  Sampler exact_;
  Workspace workspace_;
  TopK listed_;  ///< the candidates that are allowed, best first; log_z is over all tokens
  std::vector<TokenId> ids_;
  std::vector<float> logits_;
  double outside_ = detail::kNoScore;  ///< log Σ exp(logit) over all others
  std::size_t full_scans_ = 0;
};

/// Nothing where the distribution is the layer's.
inline std::optional<SampledToken> BackendSampler::draw_own(const TopKSoftmax& head, std::span<const float> h,
                                                            RandomStream& random, const QueryOptions& query) {
  if (head.exhaustive() || head.certifies() || options_.temperature == 0.0) return std::nullopt;
  if (!find_candidates(head, h, query)) return std::nullopt;
  const std::uint64_t key = random.bits();
  const Noise noise = {TokenGumbels(key), TokenGumbels(random.bits())};
  const std::size_t total = head.count_allowed(query.allowed);
  const auto is_cut = [this](SamplingStep step) { return detail::cuts(options_, step); };
  const auto& steps = options_.order.steps;
  const auto first_cut = std::find_if(steps.begin(), steps.end(), is_cut);
  const std::optional<SampledToken> token =
      first_cut == steps.end() ? draw_uncut(noise, total) : draw_cut(*first_cut, noise, total);
  return token ? *token : draw_with_scan(head, h, noise, query);
}

/// False where the head has no list, or answers from all that are allowed.
inline bool BackendSampler::find_candidates(const TopKSoftmax& head, std::span<const float> h,
                                            const QueryOptions& query) {
  QueryOptions asked = query;
  asked.probabilities = true;
  const std::optional<Candidates> found = head.candidates(h.data(), h.size(), asked, workspace_);
  if (!found || found->everything) return false;
  const kernels::LogitEdits edits = {query.allowed, query.logit_bias.data(), query.logit_bias.size()};
  score_candidates(head, h, *found, edits);

  std::vector<ScoredToken> tokens;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (logits_[i] != detail::kForbidden) tokens.push_back({logits_[i], ids_[i]});
  }
  std::sort(tokens.begin(), tokens.end(), ranks_before);
  listed_.ids.clear();
  listed_.logits.clear();
  for (const ScoredToken& token : tokens) {
    listed_.ids.push_back(token.id);
    listed_.logits.push_back(token.logit);
  }
  listed_.log_z = kernels::log_add_exp(detail::log_sum_exp(listed_.logits, 1.0), outside_);
  return true;
}

/// The candidates and the biased tokens with their logits, edited, and what is outside of them.
inline void BackendSampler::score_candidates(const TopKSoftmax& head, std::span<const float> h,
                                             const Candidates& found, const kernels::LogitEdits& edits) {
  const auto ids = detail::with_edited_tokens({.edits = edits}, found, head.vocab(), workspace_);
  ids_.assign(ids.begin(), ids.end());
  logits_.resize(ids_.size());
  head.logits_of(h, ids_, {}, workspace_, logits_);
  std::size_t count = 0;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const bool is_biased_alone = i >= found.ids.size();
    if (logits_[i] == detail::kForbidden) continue;           // it has no row
    if (is_biased_alone && !edits.allows(ids_[i])) continue;  // nor is it any of what is outside
    ids_[count] = ids_[i];
    logits_[count++] = logits_[i];
  }
  ids_.resize(count);
  logits_.resize(count);
  const bool learned = found.normalizer == Normalizer::learned;
  outside_ = learned ? detail::learned_outside(found, count, logits_.data(), workspace_) : found.outside;
  detail::edit(edits, ids_, logits_.data());
}

/// Bounds of log Σ exp((logit − best())/temperature) over the others, of which there are so many.
inline detail::Bounds BackendSampler::outside_at(double temperature, std::size_t others) const {
  if (others == 0 || outside_ == detail::kNoScore) return {detail::kNoScore, detail::kNoScore};
  const double in_one = (outside_ - best()) / temperature;
  const double evenly = in_one + (1.0 - 1.0 / temperature) * std::log(static_cast<double>(others));
  return {std::min(in_one, evenly), std::max(in_one, evenly)};
}

/// Offers the listed tokens from one place to another, whose log weights are 0 for the logit `best`; returns
/// the place of the one that leads.
inline std::size_t BackendSampler::lead(const Noise& noise, std::size_t first, std::size_t end, double best,
                                        detail::Leader& leader) const {
  const auto score_of = [&](std::size_t i) {
    return detail::tempered(listed_.logits[i], best, options_.temperature) +
           noise.places[static_cast<TokenId>(i)];
  };
  return detail::lead_listed(listed_, first, end, score_of, leader);
}

/// A listed token with its probability, by its weight and bounds of the weights' sum.
inline SampledToken BackendSampler::listed_token(std::size_t place, double log_weight,
                                                 const detail::Bounds& log_sum) const {
  SampledToken token = {.id = listed_.ids[place], .logit = listed_.logits[place]};
  token.log_prob_low = std::min(0.0, log_weight - log_sum.high);
  token.log_prob_high = std::min(0.0, log_weight - log_sum.low);
  token.log_prob = 0.5 * (token.log_prob_low + token.log_prob_high);
  return token;
}

/// Where nothing is cut: a candidate, unless all others together lead.
inline std::optional<SampledToken> BackendSampler::draw_uncut(const Noise& noise, std::size_t total) const {
  const std::size_t count = listed_.size();
  const double temperature = options_.temperature;
  const detail::Bounds outside = outside_at(temperature, total - count);
  detail::Leader leader;
  const std::size_t place = lead(noise, 0, count, best(), leader);
  if (!(leader.score >= outside.high + noise.places[static_cast<TokenId>(count)])) return std::nullopt;
  double sum = 0.0;
  for (const float logit : listed_.logits) sum += std::exp(detail::tempered(logit, best(), temperature));
  const double inside = std::log(sum);
  return listed_token(
      place, detail::tempered(listed_.logits[place], best(), temperature),
      {kernels::log_add_exp(inside, outside.low), kernels::log_add_exp(inside, outside.high)});
}

/// Where the candidates tell which tokens stay, and all of these are candidates.
inline std::optional<SampledToken> BackendSampler::draw_cut(SamplingStep first_cut, const Noise& noise,
                                                            std::size_t total) const {
  const std::size_t count = listed_.size();
  // Tokens above the mass of all others rank before each of them, as the backend's k best do in its answers.
  const bool takes_best = first_cut == SamplingStep::top_k && options_.top_k <= count;
  const auto is_sure = [&](std::size_t i) {
    return takes_best ? i < options_.top_k : static_cast<double>(listed_.logits[i]) > outside_;
  };
  TopK sure;
  for (std::size_t i = 0; i < count && is_sure(i); ++i) {
    sure.ids.push_back(listed_.ids[i]);
    sure.logits.push_back(listed_.logits[i]);
  }
  if (sure.size() == 0) return std::nullopt;
  sure.log_z = sure.log_z_low = sure.log_z_high = listed_.log_z;
  sure.normalizer = Normalizer::exact;
  const std::size_t counted = takes_best ? sure.size() : outside_ == detail::kNoScore ? count : total;
  const auto outside = [&](double at) { return detail::log_outside(sure, counted, at); };
  const detail::Staying stay =
      detail::staying(sure, counted, options_, excludes(noise), outside, std::nullopt);
  if (!stay.decided || stay.others || stay.sure != stay.possible) return std::nullopt;
  detail::Leader leader;
  const auto best = static_cast<double>(listed_.logits[stay.first]);
  const std::size_t place = lead(noise, stay.first, stay.sure, best, leader);
  const double log_weight = detail::tempered(listed_.logits[place], best, options_.temperature);
  return listed_token(place, log_weight, {std::log(stay.mass.low), std::log(stay.mass.high)});
}

/// With the logits of all: those of the others are moved alike, so that they have the mass that the backend
/// counts. One of them is drawn only where they lead together.
inline SampledToken BackendSampler::draw_with_scan(const TopKSoftmax& head, std::span<const float> h,
                                                   const Noise& noise, const QueryOptions& query) {
  ++full_scans_;
  const std::span<const float> all = head.logits_batch(h.data(), 1, h.size(), h.size(), query, workspace_);
  const auto at = [](TokenId id) { return static_cast<std::size_t>(id); };
  const auto is_any = [](const std::vector<float>& logits) {
    return kernels::max(logits.data(), logits.size()) != detail::kForbidden;
  };
  std::vector<float> others(all.begin(), all.end());
  for (const TokenId id : listed_.ids) others[at(id)] = detail::kForbidden;
  if (is_any(others)) {
    const double moved = outside_ - kernels::log_sum_exp(others.data(), others.size());
    for (float& logit : others) logit = static_cast<float>(static_cast<double>(logit) + moved);
  }
  std::vector<float> own = others;
  for (std::size_t i = 0; i < listed_.size(); ++i) own[at(listed_.ids[i])] = listed_.logits[i];
  const detail::KeptLogits kept(own, options_, excludes(noise));

  // The listed tokens that stay lie next to each other, as those of all tokens do.
  std::size_t first = 0;
  while (first < listed_.size() && !kept.stays(listed_.ids[first])) ++first;
  std::size_t end = first;
  while (end < listed_.size() && kept.stays(listed_.ids[end])) ++end;
  const double best = first < end ? static_cast<double>(listed_.logits[first]) : outside_;
  detail::Leader leader;
  lead(noise, first, end, best, leader);
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (!kept.stays(static_cast<TokenId>(i))) others[i] = detail::kForbidden;
  }
  TokenId id = leader.token.id;
  if (is_any(others)) {
    const detail::KeptLogits staying(others, {.temperature = options_.temperature}, false);
    const double together = staying.log_sum(best) + noise.places[static_cast<TokenId>(listed_.size())];
    if (!(leader.score >= together)) id = staying.draw(noise.others).id;
  }
  SampledToken token = {.id = id, .logit = all[at(id)]};
  token.log_prob = token.log_prob_low = token.log_prob_high = std::log(kept[id]);
  return token;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
