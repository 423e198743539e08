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
#include "topksoftmax/decoding/ranked_tokens.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The logits of all tokens and what the options leave of them. Nothing is sorted: what stays are the tokens
/// that rank before or are the last one that stays. Cost: a few passes over the logits.
class KeptLogits {
 public:
  /// Throws std::invalid_argument where no logit is above −∞ (forbidden). The logits must outlive this.
  KeptLogits(std::span<const float> logits, const SamplingOptions& options);

  /// The probability of a token.
  double operator[](TokenId id) const;

  /// All probabilities.
  Distribution distribution() const;

  /// Draws one of them: that with the largest log weight + Gumbel, of equal ones the lowest id. Cost: a pass
  /// over the logits, and a few logarithms for every 64 of them.
  SampledToken draw(const TokenGumbels& gumbels) const;

 private:
  struct Weighted {
    ScoredToken token;
    double weight;  ///< exp((logit − the best one's)/temperature)
  };

  static bool goes_first(const Weighted& a, const Weighted& b) { return ranks_before(a.token, b.token); }

  /// Where the weights, the most probable token first, sum up to some mass.
  struct Crossing {
    ScoredToken token{};    ///< the first with which they reach it
    std::size_t count = 0;  ///< tokens up to this one
    double sum = 0.0;       ///< of their weights
  };

  void temper(double temperature);
  bool stays(TokenId id) const;
  SampledToken sampled(TokenId id) const;
  double log_weight(float logit) const { return tempered(logit, best_, temperature_); }
  double weight(float logit) const { return std::exp(log_weight(logit)); }
  std::vector<float> weights() const;
  /// At least the `wanted` best, in no order; before anything is cut.
  std::vector<Weighted> best(std::size_t wanted) const;
  Crossing cross(double target) const;
  void cut_to_best(std::size_t count);
  void cut_to_nucleus(double share);
  void cut_below(double lowest);
  void keep(std::span<const Weighted> tokens);
  static std::size_t order_to_mass(std::span<Weighted> tokens, double target);

  std::span<const float> logits_;
  std::vector<float> tempered_;  ///< (logit − best)/temperature; empty where the temperature is 1
  double temperature_ = 1.0;
  std::size_t count_ = 0;  ///< tokens that stay
  double sum_ = 0.0;       ///< of their weights
  float best_ = 0.0F;
  ScoredToken last_;  ///< the last that stays
};

inline constexpr float kForbidden = -std::numeric_limits<float>::infinity();

/// Tokens are put into so many buckets by how far they are below the best, this many nats in all; what is
/// further below shares the last.
inline constexpr std::size_t kBuckets = 512;
inline constexpr float kBucketNats = 24.0F;

inline KeptLogits::KeptLogits(std::span<const float> logits, const SamplingOptions& options)
    : logits_(logits), last_{kForbidden, std::numeric_limits<TokenId>::max()} {
  best_ = kernels::max(logits.data(), logits.size());
  if (best_ == kForbidden) throw std::invalid_argument("sampling: no token is allowed");
  count_ = logits.size() - static_cast<std::size_t>(std::count(logits.begin(), logits.end(), kForbidden));
  const bool greedy = options.temperature == 0.0;
  const double cutting = greedy ? 1.0 : cutting_temperature(options);
  temper(cutting);
  if (greedy) cut_to_best(1);
  if (options.top_k != 0 && options.top_k < count_) cut_to_best(options.top_k);
  if (options.top_p < 1.0) cut_to_nucleus(options.top_p);
  if (options.min_p > 0.0) cut_below(lowest_logit(best_, options));
  if (!greedy && options.temperature != cutting) temper(options.temperature);
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
  if (last_.logit == kForbidden) {
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
  return token.logit != kForbidden && !ranks_before(last_, token);
}

inline double KeptLogits::operator[](TokenId id) const {
  return stays(id) ? weight(logits_[static_cast<std::size_t>(id)]) / sum_ : 0.0;
}

inline std::vector<KeptLogits::Weighted> KeptLogits::best(std::size_t wanted) const {
  const std::size_t vocab = logits_.size();
  std::vector<TokenId> ids(vocab + kernels::kSlack);
  std::vector<float> values(vocab / 8 + 2 * kernels::kSlack);
  std::size_t found = 0;
  if (wanted < count_) found = kernels::promising(logits_.data(), vocab, wanted, values.data(), ids.data());
  if (found < wanted) {
    found = 0;
    for (std::size_t id = 0; id < vocab; ++id) {
      ids[found] = static_cast<TokenId>(id);
      found += logits_[id] != kForbidden ? 1 : 0;
    }
  }
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

inline std::size_t KeptLogits::order_to_mass(std::span<Weighted> tokens, double target) {
  constexpr std::size_t few = 16;
  std::size_t begin = 0;
  std::size_t end = tokens.size();
  double before = 0.0;
  while (end - begin > few) {
    const std::size_t middle = begin + (end - begin) / 2;
    const auto at = [tokens](std::size_t i) { return tokens.begin() + static_cast<std::ptrdiff_t>(i); };
    std::nth_element(at(begin), at(middle), at(end), goes_first);
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
            tokens.begin() + static_cast<std::ptrdiff_t>(end), goes_first);
  while (begin + 1 < end && before + tokens[begin].weight < target) before += tokens[begin++].weight;
  return begin + 1;
}

inline void KeptLogits::keep(std::span<const Weighted> tokens) {
  count_ = tokens.size();
  sum_ = 0.0;
  last_ = tokens.front().token;
  for (const Weighted& one : tokens) {
    sum_ += one.weight;
    if (ranks_before(last_, one.token)) last_ = one.token;
  }
}

inline void KeptLogits::cut_to_best(std::size_t count) {
  std::vector<Weighted> tokens = best(count);
  std::nth_element(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count - 1), tokens.end(),
                   goes_first);
  keep(std::span<const Weighted>(tokens).first(count));
}

inline KeptLogits::Crossing KeptLogits::cross(double target) const {
  const std::vector<float> weight_of = weights();
  const bool cut = last_.logit != kForbidden;
  const auto per_logit = static_cast<float>(kBuckets / (kBucketNats * temperature_));
  const auto bucket_of = [this, per_logit](float logit) {
    return static_cast<std::size_t>(std::min((best_ - logit) * per_logit, static_cast<float>(kBuckets)));
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
  const std::size_t taken = order_to_mass(tokens, target - crossing.sum);
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

inline void KeptLogits::cut_below(double lowest) {
  std::vector<Weighted> tokens;
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    const ScoredToken token = {logits_[id], static_cast<TokenId>(id)};
    if (static_cast<double>(token.logit) < lowest || !stays(token.id)) continue;
    tokens.push_back({token, weight(token.logit)});
  }
  keep(tokens);
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

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
