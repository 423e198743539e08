// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/bounded_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A token with its score, log weight + Gumbel.
struct Rival {
  double score;
  ScoredToken token;
};

/// Tokens that compete for being drawn: after one context, with the Gumbels of one number.
struct Race {
  const TopKSoftmax& head;
  std::span<const float> h;
  const TokenGumbels& gumbels;
  const QueryOptions& query;
  Workspace& workspace;
  double temperature;
  double best = 0.0;  ///< log weights are 0 for this logit

  /// The logarithm of a token's weight.
  double log_weight(float logit) const { return tempered(logit, best, temperature); }
};

/// Which rivals of those that were met are sought.
struct Sought {
  double lowest;     ///< of the logits of rivals
  double score;      ///< that these must reach
  ScoredToken last;  ///< tokens that rank before this one, and itself, are no rivals
  float highest;     ///< only tokens that are named have logits above this
  std::size_t most;  ///< tokens that may be looked at one by one
};

/// The tokens beside those that were met whose Gumbels lift them to a score, in falling order of theirs: A*
/// sampling (Maddison et al. 2014, section 3) with the head's bounds. No token is scored before it must be,
/// and the Gumbels of few are computed: a token is compared by its exponential, E = exp(−Gumbel), which its
/// weight allows to be exp(log weight − score).
class Rivals {
 public:
  /// Finds the tokens that may be some. False where they are too many, or where bounds tell too little. The
  /// race must outlive what follows.
  bool find(const Race& race, const Sought& sought, const BoundedTokens& named = {});

  /// The next one; of equal ones the lower id first.
  std::optional<Rival> next();

  /// What the weights of the named tokens sum up to at the most.
  double named_weight() const { return named_weight_; }

  /// Tokens that were scored so far, in all races.
  std::size_t scored() const { return scored_; }

 private:
  /// One that exceeds the score by no more than log(excess), with kAbout to spare.
  struct Hopeful {
    double excess;
    double least;  ///< what its exponential is no less than
    float most;    ///< what its logit does not exceed, unless it is named too
    TokenId id;
  };

  static constexpr std::size_t kAtOnce = 8;
  /// More tokens than this share of the vocabulary are not looked at one by one.
  static constexpr std::size_t kShare = 16;
  /// More than what exponentials in float, and the numbers that they are taken of, are off by.
  static constexpr double kAbout = 1.0 + 1e-3;
  /// Bounds of log weights that exceed the score by so much tell nothing.
  static constexpr double kTooLoose = 64.0;

  static bool is_behind(const Hopeful& a, const Hopeful& b) { return a.excess < b.excess; }
  static bool is_behind(const Rival& a, const Rival& b) {
    return a.score != b.score ? a.score < b.score : a.token.id > b.token.id;
  }
  template <class T>
  static void make_heap(std::vector<T>& all) {
    std::make_heap(all.begin(), all.end(), [](const T& a, const T& b) { return is_behind(a, b); });
  }
  template <class T>
  static void push(std::vector<T>& heap, const T& value) {
    heap.push_back(value);
    std::push_heap(heap.begin(), heap.end(), [](const T& a, const T& b) { return is_behind(a, b); });
  }
  template <class T>
  static T pop(std::vector<T>& heap) {
    std::pop_heap(heap.begin(), heap.end(), [](const T& a, const T& b) { return is_behind(a, b); });
    const T value = heap.back();
    heap.pop_back();
    return value;
  }

  void find_unnamed(const Race& race, double limit);
  double hope(const Race& race, const BoundedTokens& tokens);
  void score_some(const Race& race);
  bool may_lead(const Hopeful& hopeful) const;

  const Race* race_ = nullptr;
  Sought sought_{};
  std::vector<Hopeful> hopeful_;  ///< heap
  std::vector<Rival> rivals_;     ///< heap
  BoundedTokens unnamed_;
  std::vector<double> least_;  ///< what exponentials are no less than
  std::vector<float> most_;    ///< what weights allow them to be
  double named_weight_ = 0.0;
  std::vector<TokenId> ids_;  ///< that are scored, and their
  std::vector<float> logits_;
  std::size_t scored_ = 0;
};

inline bool Rivals::find(const Race& race, const Sought& sought, const BoundedTokens& named) {
  race_ = &race;
  sought_ = sought;
  rivals_.clear();
  hopeful_.clear();
  const std::size_t rows = race.head.rows();
  const double limit = sought_.score - race.log_weight(sought_.highest);
  const std::size_t most = std::min(rows / kShare, sought_.most);
  if (static_cast<double>(rows) * std::exp(-limit) > static_cast<double>(most)) return false;
  const float highest = kernels::max(named.most.data(), named.most.size());
  if (race.log_weight(highest) - sought_.score > kTooLoose) return false;
  find_unnamed(race, limit);
  least_.resize(named.ids.size());
  race.gumbels.least_exponentials(named.ids, least_.data());
  named_weight_ = hope(race, named);
  make_heap(hopeful_);
  return true;
}

inline void Rivals::find_unnamed(const Race& race, double limit) {
  unnamed_.clear();
  least_.clear();
  const RowMap* const row_map = race.head.row_map().get();
  race.gumbels.visit_possible(limit, race.head.vocab(), [&](TokenId id, double least) {
    if (row_map != nullptr && row_map->row_of(id) == RowMap::none) return;
    unnamed_.ids.push_back(id);
    least_.push_back(least);
  });
  unnamed_.most.resize(unnamed_.ids.size());
  race.head.upper_bounds(race.h, unnamed_.ids, race.query, race.workspace, unnamed_.most);
  for (float& most : unnamed_.most) most = std::min(most, sought_.highest);
  hope(race, unnamed_);
}

/// Adds those of the tokens that may reach the score, which are no heap then; their exponentials are no less
/// than least_. Returns what their weights sum up to at the most.
inline double Rivals::hope(const Race& race, const BoundedTokens& tokens) {
  most_.resize(tokens.ids.size());
  // Log weights beyond the score, without a division each.
  const double inverse = 1.0 / race.temperature;
  for (std::size_t i = 0; i < most_.size(); ++i) {
    const double log_weight = (static_cast<double>(tokens.most[i]) - race.best) * inverse;
    most_[i] = static_cast<float>(log_weight - sought_.score);
  }
  const float largest = std::max(0.0F, kernels::max(most_.data(), most_.size()));
  kernels::exp(most_.data(), most_.size(), largest, most_.data());
  const double unit = std::exp(static_cast<double>(largest)) * kAbout;
  double sum = 0.0;
  for (std::size_t i = 0; i < most_.size(); ++i) {
    const double most = static_cast<double>(most_[i]) * unit;
    sum += most;
    if (least_[i] > most || static_cast<double>(tokens.most[i]) < sought_.lowest) continue;
    hopeful_.push_back({most / least_[i], least_[i], tokens.most[i], tokens.ids[i]});
  }
  return sum * std::exp(sought_.score);
}

inline void Rivals::score_some(const Race& race) {
  Hopeful some[kAtOnce];
  std::size_t count = 0;
  ids_.clear();
  while (count < kAtOnce && !hopeful_.empty()) {
    some[count] = pop(hopeful_);
    ids_.push_back(some[count++].id);
  }
  logits_.resize(count);
  race.head.logits_of(race.h, ids_, race.query, race.workspace, logits_);
  scored_ += count;
  for (std::size_t i = 0; i < count; ++i) {
    const ScoredToken token = {logits_[i], ids_[i]};
    const bool other =
        ranks_before(sought_.last, token) && token.logit != kForbidden && token.logit <= some[i].most;
    if (!other || static_cast<double>(token.logit) < sought_.lowest) continue;
    const double log_weight = race.log_weight(token.logit);
    if (some[i].least > std::exp(log_weight - sought_.score) * kAbout) continue;
    const double score = log_weight + race.gumbels[token.id];
    if (score >= sought_.score) push(rivals_, Rival{score, token});
  }
}

/// Whether no rival surely has a higher score.
inline bool Rivals::may_lead(const Hopeful& hopeful) const {
  return rivals_.empty() || hopeful.excess >= std::exp(rivals_.front().score - sought_.score);
}

inline std::optional<Rival> Rivals::next() {
  while (!hopeful_.empty() && may_lead(hopeful_.front())) score_some(*race_);
  if (rivals_.empty()) return std::nullopt;
  const Rival first = pop(rivals_);
  // It may be named and have a large Gumbel too.
  while (!rivals_.empty() && rivals_.front().token.id == first.token.id) pop(rivals_);
  return first;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
