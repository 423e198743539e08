// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/leader.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The logits of all tokens and what the options leave of them: all, or a list of tokens that rank from a
/// first to a last one. Cost: a few passes over the logits until there is a list, and then over that.
class KeptLogits {
 public:
  /// Throws std::invalid_argument where no logit is above −∞ (forbidden). `excludes`: whether XTC, where the
  /// options have it, acts. The logits must outlive this.
  KeptLogits(std::span<const float> logits, const SamplingOptions& options, bool excludes);

  /// The probability of a token.
  double operator[](TokenId id) const;

  /// Which tokens stay: those that rank from the first to the last of these.
  bool stays(TokenId id) const;

  /// log Σ exp((logit − best)/temperature) over those that stay.
  double log_sum(double best) const { return tempered(best_, best, temperature_) + std::log(sum_); }

  /// All probabilities.
  Distribution distribution() const;

  /// Draws one of them: that with the largest log weight + Gumbel, of equal ones the lowest id. Cost: a pass
  /// over the logits and a random number for every 64 of them; of a list, a logarithm for each of its tokens.
  SampledToken draw(const TokenGumbels& gumbels) const;

  /// The same where the logits are of the tokens `ids`, ascending, and their places have been their ids so
  /// far. Cost: a logarithm for each.
  SampledToken draw(const TokenGumbels& gumbels, std::span<const TokenId> ids) const;

 private:
  struct Weighted {
    ScoredToken token;
    double weight;  ///< exp((logit − the best one's)/temperature)
  };

  static bool goes_first(const Weighted& a, const Weighted& b) { return ranks_before(a.token, b.token); }

  void temper(double temperature);
  SampledToken sampled(TokenId id) const;
  double log_weight(float logit) const { return tempered(logit, best_, temperature_); }
  double weight(float logit) const { return std::exp(log_weight(logit)); }
  std::vector<float> weights() const;
  std::vector<Weighted> staying() const;
  std::vector<Weighted> best(std::size_t wanted) const;
  void weigh(std::span<Weighted> tokens) const;
  template <class DistanceOf>
  Weighted last_of_mass(double target, const DistanceOf& distance_of) const;
  void cut(SamplingStep step, const SamplingOptions& options, bool excludes);
  void cut_to_best(std::size_t count);
  void cut_to_nucleus(double share);
  void cut_to_typical(double share);
  void cut_below(double lowest);
  void cut_top(double threshold);
  double deviation() const;
  void keep(std::vector<Weighted> tokens);
  template <class Keeps>
  void keep_if(const Keeps& keeps);
  template <class Less>
  static std::size_t order_to_mass(std::span<Weighted> tokens, double target, const Less& less);
  SampledToken draw_listed(const TokenGumbels& gumbels, std::span<const Weighted> tokens,
                           std::span<const TokenId> ids) const;

  std::span<const float> logits_;
  std::vector<float> tempered_;  ///< (logit − best)/temperature of all; empty where the temperature is 1
  double temperature_ = 1.0;
  bool is_whole_ = true;        ///< whether nothing was cut
  std::vector<Weighted> kept_;  ///< otherwise: the tokens that stay, in no order
  double sum_ = 0.0;            ///< of the weights of those that stay
  float best_ = 0.0F;           ///< the largest logit that stays
  ScoredToken first_{-kForbidden, 0};
  ScoredToken last_{kForbidden, std::numeric_limits<TokenId>::max()};
};

/// Tokens are put into so many buckets by how far they are from where a cut begins, this many nats in all;
/// what is further away shares the last.
inline constexpr std::size_t kBuckets = 512;
inline constexpr double kBucketNats = 24.0;
inline constexpr std::uint16_t kNoBucket = kBuckets + 1;  ///< that of forbidden tokens
/// Tokens among which a nucleus is looked for first, and then.
inline constexpr std::size_t kOfNucleus[] = {128, 2048};

inline KeptLogits::KeptLogits(std::span<const float> logits, const SamplingOptions& options, bool excludes)
    : logits_(logits) {
  best_ = kernels::max(logits.data(), logits.size());
  if (best_ == kForbidden) throw std::invalid_argument("sampling: no token is allowed");
  if (options.temperature == 0.0) {
    temper(1.0);
    cut_to_best(1);
    return;
  }
  // Weights are made when they are needed first: they are for one temperature at a time.
  bool weighed = false;
  for (const SamplingStep step : options.order.steps) {
    if (step == SamplingStep::temperature && options.temperature != 1.0) {
      temper(options.temperature);
      weighed = true;
    }
    if (!cuts(options, step)) continue;
    if (!weighed) temper(1.0);
    weighed = true;
    cut(step, options, excludes);
  }
  if (!weighed) temper(1.0);
}

inline void KeptLogits::cut(SamplingStep step, const SamplingOptions& options, bool excludes) {
  switch (step) {
    case SamplingStep::temperature:
      return;
    case SamplingStep::top_n_sigma:
      return cut_below(best_ - options.top_n_sigma * deviation());
    case SamplingStep::top_k:
      return cut_to_best(options.top_k);
    case SamplingStep::typical_p:
      return cut_to_typical(options.typical_p);
    case SamplingStep::top_p:
      return cut_to_nucleus(options.top_p);
    case SamplingStep::min_p:
      return cut_below(best_ + temperature_ * std::log(options.min_p));
    case SamplingStep::xtc:
      if (excludes) cut_top(options.xtc_threshold);
      return;
  }
}

/// Gives weights to the tokens that stay.
inline void KeptLogits::temper(double temperature) {
  temperature_ = temperature;
  tempered_.clear();
  if (!is_whole_) {
    sum_ = 0.0;
    for (Weighted& one : kept_) sum_ += one.weight = weight(one.token.logit);
    return;
  }
  if (temperature == 1.0) {
    sum_ = kernels::sum_exp(logits_.data(), logits_.size(), best_);
    return;
  }
  tempered_.resize(logits_.size());
  const auto inverse = static_cast<float>(1.0 / temperature);
  std::transform(logits_.begin(), logits_.end(), tempered_.begin(),
                 [this, inverse](float logit) { return (logit - best_) * inverse; });
  sum_ = kernels::sum_exp(tempered_.data(), tempered_.size(), 0.0F);
}

inline bool KeptLogits::stays(TokenId id) const {
  const ScoredToken token = {logits_[static_cast<std::size_t>(id)], id};
  return token.logit != kForbidden && !ranks_before(last_, token) && !ranks_before(token, first_);
}

inline double KeptLogits::operator[](TokenId id) const {
  return stays(id) ? weight(logits_[static_cast<std::size_t>(id)]) / sum_ : 0.0;
}

/// The weights of all tokens, where nothing was cut.
inline std::vector<float> KeptLogits::weights() const {
  std::vector<float> values(logits_.size());
  const bool tempered = !tempered_.empty();
  kernels::exp(tempered ? tempered_.data() : logits_.data(), values.size(), tempered ? 0.0F : best_,
               values.data());
  return values;
}

/// The tokens that stay.
inline std::vector<KeptLogits::Weighted> KeptLogits::staying() const {
  if (!is_whole_) return kept_;
  std::vector<Weighted> tokens;
  tokens.reserve(logits_.size());
  const std::vector<float> weight_of = weights();
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    if (logits_[id] == kForbidden) continue;
    tokens.push_back({{logits_[id], static_cast<TokenId>(id)}, static_cast<double>(weight_of[id])});
  }
  return tokens;
}

/// Of those that stay the `wanted` best and those as good as the last of them, or a few more; all where they
/// are fewer.
inline std::vector<KeptLogits::Weighted> KeptLogits::best(std::size_t wanted) const {
  const std::size_t vocab = logits_.size();
  if (!is_whole_ || wanted >= vocab) return staying();
  std::vector<TokenId> ids(vocab + kernels::kSlack);
  std::vector<float> values(kernels::maxima_room(vocab));
  const std::size_t found = kernels::promising(logits_.data(), vocab, wanted, values.data(), ids.data());
  if (found < wanted) return staying();
  std::vector<Weighted> tokens(found);
  for (std::size_t i = 0; i < found; ++i)
    tokens[i].token = {logits_[static_cast<std::size_t>(ids[i])], ids[i]};
  weigh(tokens);
  return tokens;
}

/// Gives weights to some of the tokens, where nothing was cut.
inline void KeptLogits::weigh(std::span<Weighted> tokens) const {
  const std::span<const float> source = tempered_.empty() ? logits_ : std::span<const float>(tempered_);
  std::vector<float> values(tokens.size());
  std::transform(tokens.begin(), tokens.end(), values.begin(),
                 [source](const Weighted& one) { return source[static_cast<std::size_t>(one.token.id)]; });
  kernels::exp(values.data(), values.size(), tempered_.empty() ? best_ : 0.0F, values.data());
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i].weight = static_cast<double>(values[i]);
}

/// Orders the tokens as far as it takes to see how many of the first have so much mass.
template <class Less>
std::size_t KeptLogits::order_to_mass(std::span<Weighted> tokens, double target, const Less& less) {
  constexpr std::size_t few = 16;
  std::size_t begin = 0;
  std::size_t end = tokens.size();
  double before = 0.0;
  while (end - begin > few) {
    const std::size_t middle = begin + (end - begin) / 2;
    const auto at = [tokens](std::size_t i) { return tokens.begin() + static_cast<std::ptrdiff_t>(i); };
    std::nth_element(at(begin), at(middle), at(end), less);
    double sum = 0.0;
    for (std::size_t i = begin; i < middle; ++i) sum += tokens[i].weight;
    if (before + sum >= target) {
      end = middle;
    } else {
      before += sum;
      begin = middle;
    }
  }
  std::sort(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
            tokens.begin() + static_cast<std::ptrdiff_t>(end), less);
  while (begin + 1 < end && before + tokens[begin].weight < target) before += tokens[begin++].weight;
  return begin + 1;
}

/// Where the weights, the token with the least distance first, sum up to a mass: the first token with which
/// they reach it. distance_of(logit): in nats; of equal ones the token that ranks before goes first.
template <class DistanceOf>
KeptLogits::Weighted KeptLogits::last_of_mass(double target, const DistanceOf& distance_of) const {
  const auto less = [&distance_of](const Weighted& a, const Weighted& b) {
    const double of_a = distance_of(a.token.logit);
    const double of_b = distance_of(b.token.logit);
    return of_a != of_b ? of_a < of_b : goes_first(a, b);
  };
  if (!is_whole_) {
    std::vector<Weighted> tokens = kept_;
    return tokens[order_to_mass(tokens, target, less) - 1];
  }
  const std::vector<float> weight_of = weights();
  constexpr double scale = static_cast<double>(kBuckets) / kBucketNats;
  std::array<double, kBuckets + 1> masses{};
  std::array<std::size_t, kBuckets + 1> counts{};
  std::vector<std::uint16_t> bucket_of(logits_.size(), kNoBucket);
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    if (logits_[id] == kForbidden) continue;
    const double bucket = std::min(distance_of(logits_[id]) * scale, static_cast<double>(kBuckets));
    bucket_of[id] = static_cast<std::uint16_t>(bucket);
    masses[bucket_of[id]] += static_cast<double>(weight_of[id]);
    ++counts[bucket_of[id]];
  }
  std::size_t last = kBuckets;
  while (counts[last] == 0) --last;
  double before = 0.0;
  std::size_t at = 0;
  while (at < last && (counts[at] == 0 || before + masses[at] < target)) before += masses[at++];
  std::vector<Weighted> tokens;
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    if (bucket_of[id] != at) continue;
    tokens.push_back({{logits_[id], static_cast<TokenId>(id)}, static_cast<double>(weight_of[id])});
  }
  return tokens[order_to_mass(tokens, target - before, less) - 1];
}

/// What is left are these tokens, which rank one behind the other.
inline void KeptLogits::keep(std::vector<Weighted> tokens) {
  is_whole_ = false;
  kept_ = std::move(tokens);
  sum_ = 0.0;
  first_ = last_ = kept_.front().token;
  for (const Weighted& one : kept_) {
    sum_ += one.weight;
    if (ranks_before(last_, one.token)) last_ = one.token;
    if (ranks_before(one.token, first_)) first_ = one.token;
  }
  if (first_.logit == best_) return;
  best_ = first_.logit;
  temper(temperature_);
}

/// The same of those that stay and are to be kept.
template <class Keeps>
void KeptLogits::keep_if(const Keeps& keeps) {
  std::vector<Weighted> tokens;
  if (is_whole_) {
    for (std::size_t id = 0; id < logits_.size(); ++id) {
      const ScoredToken token = {logits_[id], static_cast<TokenId>(id)};
      if (token.logit != kForbidden && keeps(token)) tokens.push_back({token, 0.0});
    }
    weigh(tokens);
  } else {
    std::copy_if(kept_.begin(), kept_.end(), std::back_inserter(tokens),
                 [&keeps](const Weighted& one) { return keeps(one.token); });
  }
  keep(std::move(tokens));
}

inline void KeptLogits::cut_to_best(std::size_t count) {
  if (count >= logits_.size()) return;
  std::vector<Weighted> tokens = best(count);
  if (tokens.size() > count) {
    std::nth_element(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count - 1), tokens.end(),
                     goes_first);
    tokens.resize(count);
  }
  keep(std::move(tokens));
}

inline void KeptLogits::cut_to_nucleus(double share) {
  const double target = share * sum_;
  for (const std::size_t wanted : kOfNucleus) {
    if (!is_whole_ || 8 * wanted > logits_.size()) break;
    std::vector<Weighted> tokens = best(wanted);
    double mass = 0.0;
    for (const Weighted& one : tokens) mass += one.weight;
    if (mass < target) continue;
    tokens.resize(order_to_mass(tokens, target, goes_first));
    return keep(std::move(tokens));
  }
  const ScoredToken last = last_of_mass(target, [this](float logit) { return -log_weight(logit); }).token;
  keep_if([&last](const ScoredToken& token) { return !ranks_before(last, token); });
}

inline void KeptLogits::cut_to_typical(double share) {
  const double log_sum = std::log(sum_);
  double entropy = 0.0;
  const auto add = [&](double weight, float logit) {
    if (weight > 0.0) entropy += weight * (log_sum - log_weight(logit));
  };
  if (is_whole_) {
    const std::vector<float> weight_of = weights();
    for (std::size_t id = 0; id < logits_.size(); ++id) add(static_cast<double>(weight_of[id]), logits_[id]);
  } else {
    for (const Weighted& one : kept_) add(one.weight, one.token.logit);
  }
  entropy /= sum_;
  const auto distance_of = [&](float logit) { return std::abs(entropy + log_weight(logit) - log_sum); };
  const double farthest = distance_of(last_of_mass(share * sum_, distance_of).token.logit);
  keep_if([&](const ScoredToken& token) { return distance_of(token.logit) <= farthest; });
}

inline void KeptLogits::cut_below(double lowest) {
  keep_if([lowest](const ScoredToken& token) { return static_cast<double>(token.logit) >= lowest; });
}

/// Leaves out the tokens of at least this probability, but for the last of them.
inline void KeptLogits::cut_top(double threshold) {
  std::vector<Weighted> tokens = staying();
  const Weighted* least = nullptr;
  for (const Weighted& one : tokens) {
    if (weight(one.token.logit) / sum_ < threshold) continue;
    if (least == nullptr || goes_first(*least, one)) least = &one;
  }
  if (least == nullptr) return;
  const Weighted first = *least;
  std::erase_if(tokens, [&](const Weighted& one) { return goes_first(one, first); });
  keep(std::move(tokens));
}

/// The standard deviation of the logits that stay.
inline double KeptLogits::deviation() const {
  double count = 0.0;
  double sum = 0.0;
  double squares = 0.0;
  const auto add = [&](float logit) {
    const double below = static_cast<double>(best_) - static_cast<double>(logit);
    count += 1.0;
    sum += below;
    squares += below * below;
  };
  if (is_whole_) {
    for (const float logit : logits_) {
      if (logit != kForbidden) add(logit);
    }
  } else {
    for (const Weighted& one : kept_) add(one.token.logit);
  }
  return std::sqrt(std::max(0.0, squares / count - (sum / count) * (sum / count)));
}

inline Distribution KeptLogits::distribution() const {
  if (is_whole_ && std::find(logits_.begin(), logits_.end(), kForbidden) == logits_.end()) {
    const std::vector<float> all = weights();
    return Distribution::of_all({all.begin(), all.end()});
  }
  std::vector<Weighted> tokens = staying();
  if (!is_whole_) {
    std::sort(tokens.begin(), tokens.end(),
              [](const Weighted& a, const Weighted& b) { return a.token.id < b.token.id; });
  }
  std::vector<TokenId> ids;
  ids.reserve(tokens.size());
  std::vector<double> weights;
  weights.reserve(tokens.size());
  for (const Weighted& one : tokens) {
    ids.push_back(one.token.id);
    weights.push_back(weight(one.token.logit));
  }
  return Distribution::of_some(std::move(ids), std::move(weights));
}

inline SampledToken KeptLogits::sampled(TokenId id) const {
  SampledToken token = {.id = id, .logit = logits_[static_cast<std::size_t>(id)]};
  token.log_prob = token.log_prob_low = token.log_prob_high = std::log((*this)[id]);
  return token;
}

inline SampledToken KeptLogits::draw(const TokenGumbels& gumbels) const {
  if (!is_whole_) return draw_listed(gumbels, kept_, {});
  constexpr std::size_t block = TokenGumbels::kBlock;
  const auto logits_of = [&](std::size_t at) {
    return logits_.subspan(at * block, std::min(block, logits_.size() - at * block));
  };
  std::vector<float> best_of((logits_.size() + block - 1) / block);
  for (std::size_t at = 0; at < best_of.size(); ++at)
    best_of[at] = kernels::max(logits_of(at).data(), logits_of(at).size());
  Leader leader;
  // No score of a block is above that of its best logit with its largest Gumbel.
  const auto meet = [&](std::size_t at) {
    const double best = log_weight(best_of[at]);
    if (!gumbels.largest_may_reach(at, leader.score - best)) return;
    const double largest = gumbels.largest_of(at);
    if (!(best + largest >= leader.score)) return;
    const std::span<const float> some = logits_of(at);
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (some[i] == kForbidden || !(log_weight(some[i]) + largest >= leader.score)) continue;
      const auto id = static_cast<TokenId>(at * block + i);
      leader.offer(log_weight(some[i]) + gumbels[id], {some[i], id});
    }
  };
  // The best logit goes first, which rules out most blocks.
  const auto first =
      static_cast<std::size_t>(std::max_element(best_of.begin(), best_of.end()) - best_of.begin());
  meet(first);
  for (std::size_t at = 0; at < best_of.size(); ++at) {
    if (at != first) meet(at);
  }
  return sampled(leader.token.id);
}

inline SampledToken KeptLogits::draw(const TokenGumbels& gumbels, std::span<const TokenId> ids) const {
  if (!is_whole_) return draw_listed(gumbels, kept_, ids);
  return draw_listed(gumbels, staying(), ids);
}

/// Draws one of some tokens, which are those of their places among `ids`, if there are any.
inline SampledToken KeptLogits::draw_listed(const TokenGumbels& gumbels, std::span<const Weighted> tokens,
                                            std::span<const TokenId> ids) const {
  const auto id_of = [&](const Weighted& one) {
    return ids.empty() ? one.token.id : ids[static_cast<std::size_t>(one.token.id)];
  };
  std::vector<TokenId> drawn(tokens.size());
  std::transform(tokens.begin(), tokens.end(), drawn.begin(), id_of);
  std::vector<double> least(tokens.size());
  gumbels.least_exponentials(drawn, least.data());
  Leader leader;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const double weight = log_weight(tokens[i].token.logit);
    if (TokenGumbels::may_reach(least[i], leader.score - weight))
      leader.offer(weight + gumbels[drawn[i]], tokens[i].token);
  }
  SampledToken token = sampled(leader.token.id);
  if (!ids.empty()) token.id = ids[static_cast<std::size_t>(token.id)];
  return token;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
