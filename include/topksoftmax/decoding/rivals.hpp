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
/// sampling (Maddison et al. 2014, section 3) with the head's bounds. No token is scored before it must be.
class Rivals {
 public:
  /// Finds the tokens that may be some. False where they are too many. The race must outlive what follows.
  bool find(const Race& race);

  /// The next one; of equal ones the lower id first.
  std::optional<Rival> next();

  /// Tokens that were scored so far, in all races.
  std::size_t scored() const { return scored_; }

 private:
  /// One that may have this score, and no higher one.
  struct Hopeful {
    double most;
    double gumbel;
    TokenId id;
  };

  static constexpr std::size_t kAtOnce = 8;
  /// More tokens than this share of the vocabulary are not looked at one by one, and no more than so many for
  /// each that the answer has: a longer answer costs less then.
  static constexpr std::size_t kShare = 16;
  static constexpr std::size_t kOfAnswer = 24;

  static bool is_behind(const Hopeful& a, const Hopeful& b) { return a.most < b.most; }
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

  const Race* race_ = nullptr;
  std::vector<Hopeful> met_;      ///< whose Gumbels are large enough
  std::vector<Hopeful> hopeful_;  ///< heap
  std::vector<Rival> rivals_;     ///< heap
  std::vector<TokenId> ids_;
  std::vector<float> logits_;
  std::size_t scored_ = 0;
};

inline bool Rivals::find(const Race& race) {
  race_ = &race;
  rivals_.clear();
  hopeful_.clear();
  met_.clear();
  const std::size_t rows = race.head.rows();
  // No other token has a higher logit than the last one of the answer.
  const double limit = race.score - race.log_weight(race.answer.logits.back());
  const std::size_t most = std::min(rows / kShare, kOfAnswer * race.answer.size());
  if (static_cast<double>(rows) * std::exp(-limit) > static_cast<double>(most)) return false;
  const RowMap* const row_map = race.head.row_map().get();
  race.gumbels.visit_above(limit, race.head.vocab(), [&](TokenId id, double gumbel) {
    if (row_map == nullptr || row_map->row_of(id) != RowMap::none) met_.push_back({0.0, gumbel, id});
  });
  bound(race);
  return true;
}

inline void Rivals::bound(const Race& race) {
  ids_.clear();
  for (const Hopeful& one : met_) ids_.push_back(one.id);
  logits_.resize(ids_.size());
  race.head.upper_bounds(race.h, ids_, race.query, race.workspace, logits_);
  const float last = race.answer.logits.back();
  for (std::size_t i = 0; i < met_.size(); ++i) {
    Hopeful& one = met_[i];
    const float logit = std::min(logits_[i], last);
    one.most = race.log_weight(logit) + one.gumbel;
    if (one.most >= race.score && static_cast<double>(logit) >= race.lowest) push(hopeful_, one);
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
    const double score = race.log_weight(token.logit) + some[i].gumbel;
    if (score >= race.score) push(rivals_, Rival{score, token});
  }
}

inline std::optional<Rival> Rivals::next() {
  while (!hopeful_.empty() && (rivals_.empty() || hopeful_.front().most >= rivals_.front().score)) {
    score_some(*race_);
  }
  if (rivals_.empty()) return std::nullopt;
  return pop(rivals_);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
