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

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/check_query.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/kept_logits.hpp"
#include "topksoftmax/decoding/leader.hpp"
#include "topksoftmax/decoding/open_draws.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/rivals.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/staying.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/logit_deviation.hpp"
#include "topksoftmax/nucleus.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/sampled_log_z.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

class DrawBatch;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Draws tokens from exactly the distribution that the layer has, whatever backend is asked.
///
/// Of the tokens that the options leave, that with the largest logit/temperature + Gumbel is drawn
/// (TokenGumbels, fixed by one number of the stream): the same one whatever backend is asked, on however many
/// threads. A backend whose answers are all certified is asked for its best tokens; the others' logits are
/// below those of these, so only tokens whose Gumbels are large enough to beat the best score so far may win
/// (Mussmann et al., UAI 2017, with a proven bound), and of these, in the order of their own bounds, some are
/// scored (Rivals). Where nothing is cut and no probability asked for, no best tokens are proven: its bounds
/// name those above some logit (TopKSoftmax::tokens_reaching), and take the place of the answer. That takes
/// no log Z, and top_k and min_p take none either. top_p and XTC do: its bounds tell of most draws whether
/// the token stays. Where they do not, a nucleus that nothing else cuts is asked for the place of the token
/// that leads (TopKSoftmax::place_in_nucleus): by proven bounds, or with SamplingOptions::log_z_error by a
/// sample. Otherwise, and where too many tokens would have to be scored, more of the best tokens are asked
/// for, and in the end the logits of all. top_n_sigma takes bounds of the logits' standard deviation where
/// the head has them (TopKSoftmax::logit_deviation). typical_p, and top_n_sigma without such bounds or behind
/// top_p or XTC, look at every token that is left: they take the logits of all unless top_k, min_p,
/// top_n_sigma or, with log_z_error, top_p has left no more than an answer lists. Backends that cannot prove
/// their answers are asked for a greedy choice alone, which is theirs: for any other draw they take the
/// logits of all tokens. To draw from what such a backend itself answers, see BackendSampler.
///
/// "Exactly" is within rounding: of float32 logits, and 10⁻⁶ of probabilities; with
/// SamplingOptions::log_z_error within that. The same token is drawn but where a cut by typical_p turns on
/// as little: on distances |−log p − H| from the entropy that differ by 10⁻⁶ or less, or on probabilities
/// that reach typical_p within that.
class TOPKSOFTMAX_EXPORT Sampler {
 public:
  /// Throws std::invalid_argument as check() does.
  explicit Sampler(const SamplingOptions& options = {});

  /// Draws the token after the context h [d]. Of `query` the mask, the biases and the effort count, and
  /// whether probabilities are wanted: without, the bounds of SampledToken::log_prob are as wide as the draw
  /// left them. With them they may still be nats apart, but no wider than log_z_tolerance: where they were,
  /// the logits of all tokens are taken. Throws std::invalid_argument as a query does, and where no token is
  /// allowed.
  ///
  /// Cost: a query for 8 tokens (for top_k, unless top_n_sigma comes with it), or the bounds of one, V/16
  /// random numbers and some tens of rows of d weights; with top_n_sigma a logit_deviation; in the cases
  /// above, bounds of up to V/2 rows by all their coordinates and the weights of those that may rank before
  /// the token, queries for 32 and 128 tokens (after top_k, each for four times as many until they are 128 or
  /// more; with log_z_error until they are V/16, and a sample_log_z), or V·d weights with V exponentials. Of
  /// a mask with at most V/32 tokens, or 64, their rows alone, and a logarithm and an exponential for each;
  /// so too of one with at most V/8 where the logits of all would be taken.
  SampledToken draw(const TopKSoftmax& head, const ConstVector& h, RandomStream& random,
                    const QueryOptions& query = {}) {
    return draw(head, h.data(), static_cast<std::size_t>(h.size()), random, query);
  }

  /// The same for a context in plain memory, `dim` floats at h.
  SampledToken draw(const TopKSoftmax& head, const float* h, std::size_t dim, RandomStream& random,
                    const QueryOptions& query = {});

  /// The same on the executor's threads: what the draw reads is split among them, and the token is the same.
  /// Worth it where draws read megabytes: a step that reads less than two of Executor::grain() stays on the
  /// caller's thread.
  SampledToken draw(const TopKSoftmax& head, std::span<const float> h, RandomStream& random,
                    const QueryOptions& query, const Executor& executor) {
    const detail::LentCrew crew(workspace_, {&executor, executor.threads()});
    return draw(head, h.data(), h.size(), random, query);
  }

  /// What draws are made by.
  const SamplingOptions& options() const { return options_; }
  /// Other options for the draws that follow, in the memory that this one has warmed up. Throws as the
  /// constructor does, and leaves the former ones then.
  void set_options(const SamplingOptions& options) {
    check(options);
    options_ = options;
  }

  /// How many of the tokens drawn needed the logits of all tokens, and not just of the few that a mask
  /// allows.
  std::size_t full_scans() const { return full_scans_; }

  /// How many tokens were scored in all beside those of answers and those of full scans.
  std::size_t trials() const { return open_draws_.scored() + rivals_.scored(); }

 private:
  friend class detail::DrawBatch;

  bool takes_all_logits(const TopKSoftmax& head, const TokenGumbels& gumbels,
                        const QueryOptions& query) const;
  SampledToken draw_seeded(const TopKSoftmax& head, std::span<const float> h, std::uint64_t seed,
                           const QueryOptions& query);
  SampledToken draw_scanned(std::span<const float> logits, const TokenGumbels& gumbels);
  SampledToken draw_token(const TopKSoftmax& head, std::span<const float> h, std::uint64_t seed,
                          const QueryOptions& query);
  SampledToken draw_from_all(const TopKSoftmax& head, std::span<const float> h, const TokenGumbels& gumbels,
                             const QueryOptions& query);
  SampledToken draw_from_allowed(const TopKSoftmax& head, std::span<const float> h,
                                 const TokenGumbels& gumbels, const QueryOptions& query);
  SampledToken draw_best(const TopKSoftmax& head, std::span<const float> h, const QueryOptions& query);

  /// What must be known of the tokens that no answer lists, to tell which of them stay.
  struct Needed {
    bool log_z = false;
    bool deviation = false;
    bool logits = false;
    bool lowest = false;  ///< that they are below a logit: then an answer lists all that stay, if it is long
  };

  bool excludes(const TokenGumbels& gumbels) const { return gumbels.coin() < options_.xtc_probability; }
  Needed needed(bool excludes) const;
  SampledToken draw_from_answers(detail::Race& race, QueryOptions& asked, const Needed& needed,
                                 bool lists_all, std::uint64_t seed);
  double sampled_log_z(const TopKSoftmax& head, std::span<const float> h, const QueryOptions& query,
                       double temperature, std::uint64_t seed);
  detail::Bounds outside_of_sampled(double log_z, std::size_t total, double temperature) const;
  double temperature_of_mass() const;
  std::size_t meet_listed(const detail::Race& race, std::size_t first, std::size_t end,
                          detail::Leader& leader) const;
  std::optional<Nucleus> only_nucleus(std::uint64_t seed) const;

  /// A token, if it can be told.
  struct Drawn {
    std::optional<ScoredToken> token;
    bool may_be_told = true;  ///< where it cannot: whether a longer answer may tell
  };

  bool is_open() const;
  Drawn draw_from_staying(const detail::Race& race, const detail::Staying& stay, detail::Sought sought);
  Drawn draw_from_nucleus(const detail::Race& race, const Nucleus& nucleus, detail::Staying& stay,
                          detail::Sought sought);
  void narrow_mass(const NucleusPlace& place, const ScoredToken& token, const Nucleus& nucleus,
                   detail::Staying& stay) const;
  SampledToken with_probability(const ScoredToken& drawn, float best, const detail::Bounds& mass,
                                const std::optional<double>& log_z) const;

  SamplingOptions options_;
  Workspace workspace_;
  TopK answer_;
  detail::OpenDraws open_draws_;
  detail::Rivals rivals_;
  std::optional<LogitDeviation> deviation_;        ///< of this draw's logits, where a cut needs it
  std::vector<std::pair<double, double>> log_zs_;  ///< of this draw, by temperature, where they are sampled
  std::vector<TokenId> allowed_ids_;               ///< where these are few
  std::vector<float> allowed_logits_;
  bool scanned_ = false;  ///< whether this draw has needed the logits of all tokens
  std::size_t full_scans_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Tokens that a head is asked for at first, each time it was too few so many times more, and at most.
inline constexpr std::size_t kFirstTokens = 8;
inline constexpr std::size_t kTokensGrowth = 4;
inline constexpr std::size_t kMostTokens = 128;
/// Tokens with large Gumbels that are looked at one by one: so many for each that an answer lists. Longer
/// answers cost less then.
inline constexpr std::size_t kOfAnswer = 80;
/// An answer that is to list all tokens that stay lists so many at the most.
inline constexpr std::size_t kMostListed = 32;
/// At lower temperatures the best tokens tell more than bounds of others.
inline constexpr double kOpenTemperature = 0.5;
/// Where log Z is sampled: at most this share of the vocabulary.
inline constexpr std::size_t kListedShare = 16;

/// Whether a mask allows no more than `few` tokens, and the head reads their rows alone where it is asked for
/// the logits of all.
inline bool allows_few(const TopKSoftmax& head, const AllowedTokens& allowed, std::size_t few) {
  return !allowed.empty() && !head.collective() && head.count_allowed(allowed) <= few;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  check(options);
}

/// Once the k best are taken, the others do not count any more. Where those are that reach a logit, an answer
/// may list all that stay; of a nucleus it can do so only if log Z is not an interval.
inline Sampler::Needed Sampler::needed(bool excludes) const {
  Needed needed;
  bool is_cut = false;
  bool best_are_left = false;
  for (const SamplingStep step : options_.order.steps) {
    if (!detail::cuts(options_, step)) continue;
    switch (step) {
      case SamplingStep::temperature:
        break;
      case SamplingStep::top_k:
        return needed;
      case SamplingStep::top_n_sigma:
        (is_cut ? needed.logits : needed.deviation) |= !best_are_left;
        needed.lowest = best_are_left = true;
        break;
      case SamplingStep::top_p:
        needed.log_z |= !needed.deviation;
        best_are_left |= options_.log_z_error > 0.0;
        break;
      case SamplingStep::min_p:
        needed.lowest = best_are_left = true;
        break;
      case SamplingStep::typical_p:
        needed.logits |= !best_are_left;
        break;
      case SamplingStep::xtc:
        needed.log_z |= excludes && !needed.deviation;
        break;
    }
    is_cut = true;
  }
  return needed;
}

/// The nucleus that is all that the options leave; nothing where they cut in another way too.
inline std::optional<Nucleus> Sampler::only_nucleus(std::uint64_t seed) const {
  double temperature = 1.0;
  std::optional<Nucleus> nucleus;
  for (const SamplingStep step : options_.order.steps) {
    if (step == SamplingStep::temperature) temperature = options_.temperature;
    if (!detail::cuts(options_, step)) continue;
    if (step != SamplingStep::top_p) return std::nullopt;
    nucleus = Nucleus{
        .share = options_.top_p, .temperature = temperature, .error = options_.log_z_error, .seed = seed};
  }
  return nucleus;
}

inline SampledToken Sampler::draw(const TopKSoftmax& head, const float* h, std::size_t dim,
                                  RandomStream& random, const QueryOptions& query) {
  detail::check_limits(query);
  return draw_seeded(head, {h, dim}, random.bits(), query);
}

/// Draws by a number of a stream.
inline SampledToken Sampler::draw_seeded(const TopKSoftmax& head, std::span<const float> h,
                                         std::uint64_t seed, const QueryOptions& query) {
  scanned_ = false;
  SampledToken token = draw_token(head, h, seed, query);
  if (query.probabilities && token.log_prob_high - token.log_prob_low > query.log_z_tolerance) {
    token = draw_from_all(head, h, TokenGumbels(seed), query);
  }
  full_scans_ += scanned_ ? 1U : 0U;
  return token;
}

/// Whether no bounds help.
inline bool Sampler::takes_all_logits(const TopKSoftmax& head, const TokenGumbels& gumbels,
                                      const QueryOptions& query) const {
  if (head.exhaustive()) return true;
  if (options_.temperature == 0.0) return false;
  return !head.certifies() || needed(excludes(gumbels)).logits ||
         detail::allows_few(head, query.allowed, detail::few_allowed(head.rows()));
}

inline SampledToken Sampler::draw_token(const TopKSoftmax& head, std::span<const float> h, std::uint64_t seed,
                                        const QueryOptions& query) {
  const TokenGumbels gumbels(seed);
  if (options_.temperature == 0.0) return draw_best(head, h, query);
  if (takes_all_logits(head, gumbels, query)) return draw_from_all(head, h, gumbels, query);
  const Needed needed = this->needed(excludes(gumbels));
  deviation_.reset();
  if (needed.deviation) {
    deviation_ = head.logit_deviation(h, query, workspace_);
    if (!deviation_) return draw_from_all(head, h, gumbels, query);
  }
  QueryOptions asked = query;
  asked.log_z_tolerance = std::numeric_limits<double>::infinity();
  const bool wants_mass = options_.top_k == 0 && query.probabilities;
  asked.probabilities = needed.log_z || (wants_mass && !needed.lowest);
  asked.k = options_.top_k != 0 && !deviation_ ? options_.top_k : detail::kFirstTokens;
  detail::Race race = {.head = head,
                       .h = h,
                       .gumbels = gumbels,
                       .query = asked,
                       .workspace = workspace_,
                       .temperature = options_.temperature};
  if (is_open() && !query.probabilities && query.logit_bias.empty()) {
    const auto drawn = open_draws_.draw(race, asked);
    if (drawn) return with_probability(drawn->token, drawn->best, drawn->mass, std::nullopt);
  }
  return draw_from_answers(race, asked, needed, wants_mass && needed.lowest && !needed.log_z, seed);
}

/// The most probable token.
inline SampledToken Sampler::draw_best(const TopKSoftmax& head, std::span<const float> h,
                                       const QueryOptions& query) {
  QueryOptions asked = query;
  asked.k = 1;
  asked.probabilities = false;
  asked.log_z_tolerance = std::numeric_limits<double>::infinity();
  head.query(h, asked, workspace_, answer_);
  if (answer_.size() == 0) throw std::invalid_argument("sampling: no token is allowed");
  return {.id = answer_.ids.front(), .logit = answer_.logits.front()};
}

/// Asks for more and more of the best tokens, until these tell who is drawn, or too many would be needed.
/// `asked` is the race's query. `lists_all`: whether they are to list all that stay, if they can.
inline SampledToken Sampler::draw_from_answers(detail::Race& race, QueryOptions& asked, const Needed& needed,
                                               bool lists_all, std::uint64_t seed) {
  const TopKSoftmax& head = race.head;
  const bool excluding = excludes(race.gumbels);
  const std::optional<Nucleus> nucleus = only_nucleus(seed);
  log_zs_.clear();
  bool sampled = false;
  for (;; asked.k *= detail::kTokensGrowth) {
    const std::size_t most =
        sampled ? head.rows() / detail::kListedShare : std::max(detail::kMostTokens, options_.top_k);
    const bool lists_most = asked.k >= std::min(most, detail::kMostListed);
    asked.probabilities |= lists_all && lists_most;
    head.query(race.h, asked, workspace_, answer_);
    asked.same_context = true;
    // Certify's answers count the candidates of the backend that it repairs besides.
    const bool answer_scanned = answer_.work.candidates >= head.rows();
    const bool lists_all_there_are = answer_.size() < asked.k;
    const bool is_last = answer_scanned || lists_all_there_are || asked.k >= most;
    scanned_ |= answer_scanned;
    if (answer_.size() == 0) throw std::invalid_argument("sampling: no token is allowed");
    // Not before the query has found the mask to be long enough.
    const std::size_t total = head.count_allowed(asked.allowed);
    detail::Staying stay = detail::staying(
        answer_, total, options_, excluding,
        [&](double temperature) {
          if (!sampled) return detail::log_outside(answer_, total, temperature);
          return outside_of_sampled(sampled_log_z(head, race.h, asked, temperature, seed), total,
                                    temperature);
        },
        deviation_);
    if (stay.decided && (!lists_all || !stay.others || lists_most || answer_scanned)) {
      race.best = static_cast<double>(answer_.logits[stay.first]);
      const detail::Sought sought = {.lowest = stay.lowest,
                                     .score = detail::kNoScore,
                                     .last = {answer_.logits.back(), answer_.ids.back()},
                                     .highest = answer_.logits.back(),
                                     .most = detail::kOfAnswer * answer_.size()};
      const Drawn drawn =
          nucleus ? draw_from_nucleus(race, *nucleus, stay, sought) : draw_from_staying(race, stay, sought);
      if (drawn.token) {
        // The answer estimates log Z where nothing was cut.
        const bool uncut = stay.others_sure && stay.first == 0 && stay.lowest == detail::kNoScore;
        const bool estimated = uncut && options_.temperature == 1.0 && answer_.normalizer != Normalizer::none;
        return with_probability(*drawn.token, answer_.logits[stay.first], stay.mass,
                                estimated ? std::optional(answer_.log_z) : std::nullopt);
      }
      if (!drawn.may_be_told) return draw_from_all(head, race.h, race.gumbels, asked);
    }
    if (is_last) return draw_from_all(head, race.h, race.gumbels, asked);
    if (needed.log_z && options_.log_z_error > 0.0 && !nucleus) {
      sampled = std::isfinite(sampled_log_z(head, race.h, asked, temperature_of_mass(), seed));
    }
    asked.probabilities &= !sampled;  // what cannot be sampled is told by the answer as well as it knows
  }
}

/// Whether nothing is cut, and the best tokens are not likely to lead by far.
inline bool Sampler::is_open() const {
  const auto& steps = options_.order.steps;
  return options_.temperature >= detail::kOpenTemperature &&
         std::none_of(steps.begin(), steps.end(),
                      [&](SamplingStep step) { return detail::cuts(options_, step); });
}

/// The token that leads among those that stay.
inline Sampler::Drawn Sampler::draw_from_staying(const detail::Race& race, const detail::Staying& stay,
                                                 detail::Sought sought) {
  detail::Leader leader;
  const std::size_t place = meet_listed(race, stay.first, stay.possible, leader);
  const bool listed_stays = place < stay.sure;
  const auto told = [&leader](bool stays) {
    return Drawn{.token = stays ? std::optional(leader.token) : std::nullopt};
  };
  if (!stay.others) return told(listed_stays);
  sought.score = leader.score;
  if (!rivals_.find(race, sought)) return {};
  const std::optional<detail::Rival> rival = rivals_.next();
  const bool is_beaten = rival && leader.offer(rival->score, rival->token);
  return told(is_beaten ? stay.others_sure : listed_stays);
}

/// The same for a nucleus, of which the answer may not tell how far it goes: whoever leads of all tokens is
/// asked for its place, then the next one. Where a token is outside, so are all behind it.
inline Sampler::Drawn Sampler::draw_from_nucleus(const detail::Race& race, const Nucleus& nucleus,
                                                 detail::Staying& stay, detail::Sought sought) {
  Drawn untold;
  const auto is_inside = [&](const ScoredToken& token) -> std::optional<bool> {
    const std::optional<NucleusPlace> place =
        race.head.place_in_nucleus(race.h, token, nucleus, race.query, race.workspace);
    untold.may_be_told = !place;  // no longer answer tells more than bounds of that very token
    scanned_ |= place && place->log_z.rows_read >= race.head.rows();
    if (!place || place->open) return std::nullopt;
    narrow_mass(*place, token, nucleus, stay);
    return place->inside;
  };
  detail::Leader leader;
  std::size_t place = meet_listed(race, stay.first, stay.possible, leader);
  sought.score = leader.score;
  if (stay.others && !rivals_.find(race, sought)) return untold;
  ScoredToken outside = {-std::numeric_limits<float>::infinity(), 0};  // the best known one
  while (stay.others) {
    const std::optional<detail::Rival> rival = rivals_.next();
    if (!rival || !leader.is_beaten_by(rival->score, rival->token.id)) break;
    if (!ranks_before(rival->token, outside)) continue;
    const std::optional<bool> inside = is_inside(rival->token);
    if (!inside) return untold;
    if (*inside) return {.token = rival->token};
    outside = rival->token;
  }
  while (place >= stay.sure) {
    const std::optional<bool> inside = is_inside(leader.token);
    if (!inside) return untold;
    if (*inside) break;
    const std::size_t end = place;
    leader = {};
    place = meet_listed(race, stay.first, end, leader);
  }
  return {.token = leader.token};
}

/// What the place of a token tells of the mass of the nucleus, which is no more than its share and its last
/// token, and that weighs no more than any other inside.
inline void Sampler::narrow_mass(const NucleusPlace& place, const ScoredToken& token, const Nucleus& nucleus,
                                 detail::Staying& stay) const {
  if (nucleus.temperature != options_.temperature) return;
  const float first = answer_.logits[stay.first];
  const auto mass = [&](double log_z) {
    return std::exp(log_z - static_cast<double>(first) / options_.temperature);
  };
  const double off = place.log_z.error + detail::log_z_rounding(place.log_z.log_z);
  const double least = mass(place.log_z.log_z - off);
  const double most = mass(place.log_z.log_z + off);
  const double weight = std::exp(detail::tempered(token.logit, first, options_.temperature));
  const double highest = place.inside ? std::min(most, nucleus.share * most + weight) : most;
  stay.mass.low = std::max(stay.mass.low, nucleus.share * least);
  stay.mass.high = std::max(stay.mass.low, std::min(stay.mass.high, highest));
}

/// log Z at a temperature from a sample, which a draw takes once; infinite where the head cannot sample it,
/// or a double loses more of it than it may be off.
inline double Sampler::sampled_log_z(const TopKSoftmax& head, std::span<const float> h,
                                     const QueryOptions& query, double temperature, std::uint64_t seed) {
  for (const auto& [of, log_z] : log_zs_) {
    if (of == temperature) return log_z;
  }
  const SampledLogZOptions how = {.error = options_.log_z_error, .temperature = temperature, .seed = seed};
  const std::optional<SampledLogZ> found = head.sample_log_z(h, how, query, workspace_);
  scanned_ |= found && found->rows_read >= head.rows();
  const bool tells = found && detail::log_z_rounding(found->log_z) <= options_.log_z_error;
  log_zs_.emplace_back(temperature, tells ? found->log_z : std::numeric_limits<double>::infinity());
  return log_zs_.back().second;
}

/// The temperature at which the mass of all tokens is wanted first.
inline double Sampler::temperature_of_mass() const {
  for (const SamplingStep step : options_.order.steps) {
    if (step == SamplingStep::temperature) break;
    const bool takes_mass = step == SamplingStep::top_p || step == SamplingStep::xtc;
    if (takes_mass && detail::cuts(options_, step)) return 1.0;
  }
  return options_.temperature;
}

/// The logarithm of the weights of all tokens that the answer does not list, which are no more than their
/// number and the last one that it lists allow: beside the weight of the best token, a sample's error may be
/// far more.
inline detail::Bounds Sampler::outside_of_sampled(double log_z, std::size_t total, double temperature) const {
  const detail::Bounds ranked = detail::log_outside(answer_, total, temperature);
  if (std::isinf(log_z)) return ranked;
  const double best = static_cast<double>(answer_.logits.front());
  double inside = 0.0;
  for (const float logit : answer_.logits) inside += std::exp(detail::tempered(logit, best, temperature));
  const double sampled = std::log(std::max(0.0, std::exp(log_z - best / temperature) - inside));
  const double outside = std::min(ranked.high, sampled);
  return {outside, outside};
}

/// Offers the answer's tokens from one place to another; returns the place of the one that leads.
inline std::size_t Sampler::meet_listed(const detail::Race& race, std::size_t first, std::size_t end,
                                        detail::Leader& leader) const {
  const auto score_of = [&](std::size_t i) {
    return race.log_weight(answer_.logits[i]) + race.gumbels[answer_.ids[i]];
  };
  return detail::lead_listed(answer_, first, end, score_of, leader);
}

/// A token that was drawn, with its probability: the weights of all that stay sum up to `mass`, where that of
/// `best` is 1. Where log Z is not estimated, the middle between the bounds is as good as any.
inline SampledToken Sampler::with_probability(const ScoredToken& drawn, float best,
                                              const detail::Bounds& mass,
                                              const std::optional<double>& log_z) const {
  const double log_of_weight = detail::tempered(drawn.logit, best, options_.temperature);
  SampledToken token = {.id = drawn.id, .logit = drawn.logit};
  token.log_prob_low = log_of_weight - std::log(mass.high);
  token.log_prob_high = std::min(0.0, log_of_weight - std::log(mass.low));
  const double middle = 0.5 * (token.log_prob_low + token.log_prob_high);
  const double estimate = log_z ? static_cast<double>(drawn.logit) - *log_z : middle;
  token.log_prob = std::clamp(estimate, token.log_prob_low, token.log_prob_high);
  return token;
}

/// Of the logits of all tokens, which a batch has scanned.
inline SampledToken Sampler::draw_scanned(std::span<const float> logits, const TokenGumbels& gumbels) {
  const SampledToken token = detail::KeptLogits(logits, options_, excludes(gumbels)).draw(gumbels);
  full_scans_ += options_.temperature != 0.0 ? 1U : 0U;
  return token;
}

inline SampledToken Sampler::draw_from_all(const TopKSoftmax& head, std::span<const float> h,
                                           const TokenGumbels& gumbels, const QueryOptions& query) {
  if (detail::allows_few(head, query.allowed, detail::gathered_allowed(head.rows())))
    return draw_from_allowed(head, h, gumbels, query);
  scanned_ = true;
  const std::span<const float> logits = head.logits_batch(h.data(), 1, h.size(), h.size(), query, workspace_);
  return detail::KeptLogits(logits, options_, excludes(gumbels)).draw(gumbels);
}

/// Where a mask allows so few tokens that they are scored by themselves.
inline SampledToken Sampler::draw_from_allowed(const TopKSoftmax& head, std::span<const float> h,
                                               const TokenGumbels& gumbels, const QueryOptions& query) {
  allowed_ids_.clear();
  query.allowed.visit_allowed(head.vocab(), [this](TokenId id) { allowed_ids_.push_back(id); });
  allowed_logits_.resize(allowed_ids_.size());
  head.logits_of(h, allowed_ids_, query, workspace_, allowed_logits_);
  return detail::KeptLogits(allowed_logits_, options_, excludes(gumbels)).draw(gumbels, allowed_ids_);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
