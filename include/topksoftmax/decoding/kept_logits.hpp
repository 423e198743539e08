// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
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

/// The logits of all tokens and what the options leave of them. Nothing is sorted: what stays are the tokens
/// that rank from the first to the last one that stays. Cost: a few passes over the logits.
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
  /// over the logits, and a few logarithms for every 64 of them.
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

  /// Whether nothing was cut.
  bool whole() const { return last_.logit == kForbidden && first_.logit == -kForbidden; }

  /// Where the weights, the most probable token first, sum up to some mass.
  struct Crossing {
    ScoredToken token{};    ///< the first with which they reach it
    std::size_t count = 0;  ///< tokens up to this one
    double sum = 0.0;       ///< of their weights
  };

  void temper(double temperature);
  SampledToken sampled(TokenId id) const;
  double log_weight(float logit) const { return tempered(logit, best_, temperature_); }
  double weight(float logit) const { return std::exp(log_weight(logit)); }
  std::vector<float> weights() const;
  std::vector<Weighted> staying() const;
  std::vector<Weighted> best(std::size_t wanted) const;
  Crossing cross(double target) const;
  void cut(SamplingStep step, const SamplingOptions& options, bool excludes);
  void cut_to_best(std::size_t count);
  void cut_to_nucleus(double share);
  void cut_to_typical(double share);
  void cut_below(double lowest);
  void cut_top(double threshold);
  double deviation() const;
  void keep(std::span<const Weighted> tokens);
  template <class Less>
  static std::size_t order_to_mass(std::span<Weighted> tokens, double target, const Less& less);

  std::span<const float> logits_;
  std::vector<float> tempered_;  ///< (logit − best)/temperature; empty where the temperature is 1
  double temperature_ = 1.0;
  std::size_t count_ = 0;  ///< tokens that stay
  double sum_ = 0.0;       ///< of their weights
  float best_ = 0.0F;      ///< the largest logit that stays
  ScoredToken first_{-kForbidden, 0};
  ScoredToken last_{kForbidden, std::numeric_limits<TokenId>::max()};
};

/// Tokens are put into so many buckets by how far they are below the best, this many nats in all; what is
/// further below shares the last.
inline constexpr std::size_t kBuckets = 512;
inline constexpr float kBucketNats = 24.0F;

inline KeptLogits::KeptLogits(std::span<const float> logits, const SamplingOptions& options, bool excludes)
    : logits_(logits) {
  best_ = kernels::max(logits.data(), logits.size());
  if (best_ == kForbidden) throw std::invalid_argument("sampling: no token is allowed");
  count_ = logits.size() - static_cast<std::size_t>(std::count(logits.begin(), logits.end(), kForbidden));
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
      if (options.top_k < count_) cut_to_best(options.top_k);
      return;
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
  if (temperature != 1.0) {
    tempered_.resize(logits_.size());
    const auto inverse = static_cast<float>(1.0 / temperature);
    std::transform(logits_.begin(), logits_.end(), tempered_.begin(),
                   [this, inverse](float logit) { return (logit - best_) * inverse; });
  }
  if (whole()) {
    sum_ = tempered_.empty() ? kernels::sum_exp(logits_.data(), logits_.size(), best_)
                             : kernels::sum_exp(tempered_.data(), tempered_.size(), 0.0F);
    return;
  }
  sum_ = 0.0;
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    if (stays(static_cast<TokenId>(id))) sum_ += weight(logits_[id]);
  }
}

inline bool KeptLogits::stays(TokenId id) const {
  const ScoredToken token = {logits_[static_cast<std::size_t>(id)], id};
  return token.logit != kForbidden && !ranks_before(last_, token) && !ranks_before(token, first_);
}

inline double KeptLogits::operator[](TokenId id) const {
  return stays(id) ? weight(logits_[static_cast<std::size_t>(id)]) / sum_ : 0.0;
}

/// The tokens that stay, by their ids.
inline std::vector<KeptLogits::Weighted> KeptLogits::staying() const {
  std::vector<Weighted> tokens;
  tokens.reserve(count_);
  const std::vector<float> weight_of = weights();
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (stays(token)) tokens.push_back({{logits_[id], token}, static_cast<double>(weight_of[id])});
  }
  return tokens;
}

/// At least the `wanted` best of those that stay, in no order.
inline std::vector<KeptLogits::Weighted> KeptLogits::best(std::size_t wanted) const {
  const std::size_t vocab = logits_.size();
  if (!whole() || wanted >= count_) return staying();
  std::vector<TokenId> ids(vocab + kernels::kSlack);
  std::vector<float> values(kernels::maxima_room(vocab));
  const std::size_t found = kernels::promising(logits_.data(), vocab, wanted, values.data(), ids.data());
  if (found < wanted) return staying();
  values.resize(found);
  const std::span<const float> source = tempered_.empty() ? logits_ : std::span<const float>(tempered_);
  for (std::size_t i = 0; i < found; ++i) values[i] = source[static_cast<std::size_t>(ids[i])];
  kernels::exp(values.data(), found, tempered_.empty() ? best_ : 0.0F, values.data());
  std::vector<Weighted> tokens(found);
  for (std::size_t i = 0; i < found; ++i) {
    tokens[i] = {{logits_[static_cast<std::size_t>(ids[i])], ids[i]}, values[i]};
  }
  return tokens;
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

/// What is left are these tokens, which rank one behind the other.
inline void KeptLogits::keep(std::span<const Weighted> tokens) {
  count_ = tokens.size();
  sum_ = 0.0;
  first_ = last_ = tokens.front().token;
  for (const Weighted& one : tokens) {
    sum_ += one.weight;
    if (ranks_before(last_, one.token)) last_ = one.token;
    if (ranks_before(one.token, first_)) first_ = one.token;
  }
  if (first_.logit == best_) return;
  best_ = first_.logit;
  temper(temperature_);
}

inline void KeptLogits::cut_to_best(std::size_t count) {
  std::vector<Weighted> tokens = best(count);
  std::nth_element(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count - 1), tokens.end(),
                   goes_first);
  keep(std::span<const Weighted>(tokens).first(count));
}

inline KeptLogits::Crossing KeptLogits::cross(double target) const {
  const std::vector<float> weight_of = weights();
  const bool cut = !whole();
  const auto per_logit = static_cast<float>(kBuckets / (kBucketNats * temperature_));
  const auto bucket_of = [this, per_logit](float logit) {
    return static_cast<std::size_t>(
        std::clamp((best_ - logit) * per_logit, 0.0F, static_cast<float>(kBuckets)));
  };
  std::array<double, kBuckets + 1> masses{};
  std::array<std::size_t, kBuckets + 1> counts{};
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    if (cut ? !stays(static_cast<TokenId>(id)) : logits_[id] == kForbidden) continue;
    const std::size_t bucket = bucket_of(logits_[id]);
    masses[bucket] += static_cast<double>(weight_of[id]);
    ++counts[bucket];
  }
  Crossing crossing;
  std::size_t at = 0;
  std::size_t last = kBuckets;
  while (counts[last] == 0) --last;
  for (; at < last && (counts[at] == 0 || crossing.sum + masses[at] < target); ++at) {
    crossing.sum += masses[at];
    crossing.count += counts[at];
  }
  std::vector<Weighted> tokens;
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (bucket_of(logits_[id]) != at || !stays(token)) continue;
    tokens.push_back({{logits_[id], token}, static_cast<double>(weight_of[id])});
  }
  const std::size_t taken = order_to_mass(tokens, target - crossing.sum, goes_first);
  crossing.token = tokens[taken - 1].token;
  crossing.count += taken;
  for (std::size_t i = 0; i < taken; ++i) crossing.sum += tokens[i].weight;
  return crossing;
}

inline void KeptLogits::cut_to_nucleus(double share) {
  const Crossing crossing = cross(share * sum_);
  last_ = crossing.token;
  count_ = crossing.count;
  sum_ = crossing.sum;
}

inline void KeptLogits::cut_to_typical(double share) {
  std::vector<Weighted> tokens = staying();
  const double log_sum = std::log(sum_);
  double entropy = 0.0;
  for (const Weighted& one : tokens) {
    if (one.weight > 0.0) entropy -= one.weight / sum_ * (log_weight(one.token.logit) - log_sum);
  }
  const auto distance = [&](const Weighted& one) {
    return std::abs(entropy + log_weight(one.token.logit) - log_sum);
  };
  const std::size_t taken = order_to_mass(tokens, share * sum_, [&](const Weighted& a, const Weighted& b) {
    const double of_a = distance(a);
    const double of_b = distance(b);
    return of_a != of_b ? of_a < of_b : goes_first(a, b);
  });
  const double farthest = distance(tokens[taken - 1]);
  std::erase_if(tokens, [&](const Weighted& one) { return distance(one) > farthest; });
  keep(tokens);
}

inline void KeptLogits::cut_below(double lowest) {
  std::vector<Weighted> tokens;
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    const ScoredToken token = {logits_[id], static_cast<TokenId>(id)};
    if (static_cast<double>(token.logit) < lowest || !stays(token.id)) continue;
    tokens.push_back({token, weight(token.logit)});
  }
  keep(tokens);
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
  keep(tokens);
}

/// The standard deviation of the logits that stay.
inline double KeptLogits::deviation() const {
  const auto count = static_cast<double>(count_);
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    if (!stays(static_cast<TokenId>(id))) continue;
    const double below = static_cast<double>(best_) - static_cast<double>(logits_[id]);
    sum += below;
    squares += below * below;
  }
  return std::sqrt(std::max(0.0, squares / count - (sum / count) * (sum / count)));
}

inline std::vector<float> KeptLogits::weights() const {
  std::vector<float> values(logits_.size());
  const bool tempered = !tempered_.empty();
  kernels::exp(tempered ? tempered_.data() : logits_.data(), values.size(), tempered ? 0.0F : best_,
               values.data());
  return values;
}

inline Distribution KeptLogits::distribution() const {
  if (count_ == logits_.size()) {
    const std::vector<float> all = weights();
    return Distribution::of_all({all.begin(), all.end()});
  }
  std::vector<TokenId> ids;
  ids.reserve(count_);
  std::vector<double> weights;
  weights.reserve(count_);
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    if (!stays(static_cast<TokenId>(id))) continue;
    ids.push_back(static_cast<TokenId>(id));
    weights.push_back(weight(logits_[id]));
  }
  return Distribution::of_some(std::move(ids), std::move(weights));
}

inline SampledToken KeptLogits::sampled(TokenId id) const {
  SampledToken token = {.id = id, .logit = logits_[static_cast<std::size_t>(id)]};
  token.log_prob = token.log_prob_low = token.log_prob_high = std::log((*this)[id]);
  return token;
}

inline SampledToken KeptLogits::draw(const TokenGumbels& gumbels) const {
  constexpr std::size_t block = TokenGumbels::kBlock;
  const std::size_t blocks = (logits_.size() + block - 1) / block;
  const auto logits_of = [&](std::size_t at) {
    return logits_.subspan(at * block, std::min(block, logits_.size() - at * block));
  };
  // No score of a block is above that of its best logit with its largest Gumbel.
  std::vector<double> bounds(blocks);
  for (std::size_t at = 0; at < blocks; ++at) {
    const std::span<const float> some = logits_of(at);
    const float best = kernels::max(some.data(), some.size());
    bounds[at] = best == kForbidden ? kNoScore : log_weight(best) + gumbels.largest_of(at);
  }
  Leader leader;
  const auto meet = [&](std::size_t at) {
    const double largest = gumbels.largest_of(at);
    const std::span<const float> some = logits_of(at);
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (!(log_weight(some[i]) + largest >= leader.score)) continue;
      const auto id = static_cast<TokenId>(at * block + i);
      if (stays(id)) leader.offer(log_weight(some[i]) + gumbels[id], {some[i], id});
    }
  };
  const auto first =
      static_cast<std::size_t>(std::max_element(bounds.begin(), bounds.end()) - bounds.begin());
  meet(first);
  for (std::size_t at = 0; at < blocks; ++at) {
    if (at != first && bounds[at] >= leader.score) meet(at);
  }
  return sampled(leader.token.id);
}

inline SampledToken KeptLogits::draw(const TokenGumbels& gumbels, std::span<const TokenId> ids) const {
  std::vector<double> least(ids.size());
  gumbels.least_exponentials(ids, least.data());
  Leader leader;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto place = static_cast<TokenId>(i);
    if (!stays(place)) continue;
    const double weight = log_weight(logits_[i]);
    if (weight - std::log(least[i]) >= leader.score)
      leader.offer(weight + gumbels[ids[i]], {logits_[i], place});
  }
  SampledToken token = sampled(leader.token.id);
  token.id = ids[static_cast<std::size_t>(token.id)];
  return token;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
