// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/kept_logits.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A token with its score, log weight + Gumbel.
struct Rival {
  double score;
  ScoredToken token;
};

/// What rivals are sought for.
struct Race {
  const TopKSoftmax& head;
  std::span<const float> h;
  const TokenGumbels& gumbels;
  const QueryOptions& query;
  Workspace& workspace;
  const TopK& answer;  ///< the best tokens, which are not their own rivals
  double temperature;
  double lowest;  ///< of the logits of rivals
  double score;   ///< that these must reach

  /// The logarithm of a token's weight.
  double log_weight(float logit) const { return tempered(logit, answer.logits.front(), temperature); }
};

/// The tokens beside a proven answer whose Gumbels lift them to a score, in falling order of theirs: A*
/// sampling (Maddison et al. 2014, section 3) with the head's bounds. No token is scored before it must be,
/// and the Gumbels of few are computed: a token is compared by its exponential, E = exp(−Gumbel), which its
/// weight allows to be exp(log weight − score).
class Rivals {
 public:
  /// Finds the tokens that may be some. False where they are too many. The race must outlive what follows.
  bool find(const Race& race);

  /// The next one; of equal ones the lower id first.
  std::optional<Rival> next();

  /// Tokens that were scored so far, in all races.
  std::size_t scored() const { return scored_; }

 private:
  /// One that exceeds the score by no more than log(excess), with kAbout to spare.
  struct Hopeful {
    double excess;
    double least;  ///< what its exponential is no less than
    TokenId id;
  };

  static constexpr std::size_t kAtOnce = 8;
  /// More tokens than this share of the vocabulary are not looked at one by one, and no more than so many for
  /// each that the answer has: a longer answer costs less then.
  static constexpr std::size_t kShare = 16;
  static constexpr std::size_t kOfAnswer = 80;
  /// More than what exponentials in float, and the numbers that they are taken of, are off by.
  static constexpr double kAbout = 1.0 + 1e-3;

  static bool is_behind(const Hopeful& a, const Hopeful& b) { return a.excess < b.excess; }
  static bool is_behind(const Rival& a, const Rival& b) {
    return a.score != b.score ? a.score < b.score : a.token.id > b.token.id;
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

  void bound(const Race& race);
  void score_some(const Race& race);
  bool may_lead(const Hopeful& hopeful) const;

  const Race* race_ = nullptr;
  std::vector<Hopeful> hopeful_;  ///< heap
  std::vector<Rival> rivals_;     ///< heap
  std::vector<TokenId> ids_;
  std::vector<double> least_;  ///< what the exponentials of ids_ are no less than
  std::vector<float> logits_;
  std::vector<float> most_;  ///< what their weights allow them to be
  std::size_t scored_ = 0;
};

inline bool Rivals::find(const Race& race) {
  race_ = &race;
  rivals_.clear();
  hopeful_.clear();
  ids_.clear();
  least_.clear();
  const std::size_t rows = race.head.rows();
  // No other token has a higher logit than the last one of the answer.
  const double limit = race.score - race.log_weight(race.answer.logits.back());
  const std::size_t most = std::min(rows / kShare, kOfAnswer * race.answer.size());
  if (static_cast<double>(rows) * std::exp(-limit) > static_cast<double>(most)) return false;
  const RowMap* const row_map = race.head.row_map().get();
  race.gumbels.visit_possible(limit, race.head.vocab(), [&](TokenId id, double least) {
    if (row_map != nullptr && row_map->row_of(id) == RowMap::none) return;
    ids_.push_back(id);
    least_.push_back(least);
  });
  bound(race);
  return true;
}

inline void Rivals::bound(const Race& race) {
  logits_.resize(ids_.size());
  most_.resize(ids_.size());
  race.head.upper_bounds(race.h, ids_, race.query, race.workspace, logits_);
  const float last = race.answer.logits.back();
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    logits_[i] = std::min(logits_[i], last);
    // Below 0, since find() looks at no more tokens than a share of all.
    most_[i] = static_cast<float>(race.log_weight(logits_[i]) - race.score);
  }
  kernels::exp(most_.data(), most_.size(), 0.0F, most_.data());
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const double most = static_cast<double>(most_[i]) * kAbout;
    if (least_[i] > most || static_cast<double>(logits_[i]) < race.lowest) continue;
    push(hopeful_, Hopeful{most / least_[i], least_[i], ids_[i]});
  }
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
  const ScoredToken last = {race.answer.logits.back(), race.answer.ids.back()};
  for (std::size_t i = 0; i < count; ++i) {
    const ScoredToken token = {logits_[i], ids_[i]};
    const bool other = ranks_before(last, token) && token.logit != kForbidden;
    if (!other || static_cast<double>(token.logit) < race.lowest) continue;
    const double log_weight = race.log_weight(token.logit);
    if (some[i].least > std::exp(log_weight - race.score) * kAbout) continue;
    const double score = log_weight + race.gumbels[token.id];
    if (score >= race.score) push(rivals_, Rival{score, token});
  }
}

/// Whether no rival surely has a higher score.
inline bool Rivals::may_lead(const Hopeful& hopeful) const {
  return rivals_.empty() || hopeful.excess >= std::exp(rivals_.front().score - race_->score);
}

inline std::optional<Rival> Rivals::next() {
  while (!hopeful_.empty() && may_lead(hopeful_.front())) score_some(*race_);
  if (rivals_.empty()) return std::nullopt;
  return pop(rivals_);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
