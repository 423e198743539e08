// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "topksoftmax/bounded_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/leader.hpp"
#include "topksoftmax/decoding/rivals.hpp"
#include "topksoftmax/decoding/staying.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Draws from all tokens, for which no best ones are proven. Some likely tokens are met, and the others
/// divided by a logit: of those that may reach it by their bounds few have the Gumbels that they need, and
/// below it it takes a Gumbel that few have.
class OpenDraws {
 public:
  /// A token that was drawn.
  struct Drawn {
    ScoredToken token;
    float best;   ///< the logit of weight 1
    Bounds mass;  ///< of the weights of all tokens
  };

  /// The token that is drawn; nothing where bounds are missing or tell too little. `query` is that of the
  /// race, which biases nothing; its context is known to be the same from here on. The best logit of the race
  /// does not matter.
  std::optional<Drawn> draw(Race race, QueryOptions& query);

  /// How many tokens were scored so far.
  std::size_t scored() const { return met_ + rivals_.scored(); }

 private:
  /// Tokens that are met, and as many others as are to have a Gumbel large enough below the logit that
  /// divides them.
  static constexpr std::size_t kLikelyTokens = 12;
  static constexpr double kLuckyTokens = 64.0;
  static constexpr double kLuckyShare = 32.0;  ///< or this share of the vocabulary

  double weigh_likely(const Race& race);
  Leader meet_likely(const Race& race);
  static float dividing_logit(const Race& race, const Leader& leader, std::size_t total);

  std::vector<ScoredToken> likely_;
  std::vector<double> weights_;  ///< of the likely tokens
  std::vector<TokenId> ids_;     ///< likewise
  std::vector<double> most_;     ///< what the exponentials of their scores do not exceed
  BoundedTokens reaching_;
  Rivals rivals_;
  std::size_t met_ = 0;  ///< likely tokens, in all draws
};

/// The weights of the likely tokens, and their sum.
inline double OpenDraws::weigh_likely(const Race& race) {
  double sum = 0.0;
  weights_.clear();
  for (const ScoredToken& token : likely_) {
    weights_.push_back(std::exp(race.log_weight(token.logit)));
    sum += weights_.back();
  }
  return sum;
}

/// The one that leads of the likely tokens.
inline Leader OpenDraws::meet_likely(const Race& race) {
  ids_.clear();
  for (const ScoredToken& token : likely_) ids_.push_back(token.id);
  most_.resize(likely_.size());
  race.gumbels.least_exponentials(ids_, most_.data());
  for (std::size_t i = 0; i < likely_.size(); ++i) most_[i] = weights_[i] / most_[i];
  // Few Gumbels are computed: most tokens cannot lead, whatever theirs are.
  Leader leader;
  const auto meet = [&](std::size_t i) {
    leader.offer(race.log_weight(likely_[i].logit) + race.gumbels[likely_[i].id], likely_[i]);
  };
  const auto first = static_cast<std::size_t>(std::max_element(most_.begin(), most_.end()) - most_.begin());
  meet(first);
  const double least = std::exp(leader.score) * (1.0 - kLogitRounding);
  for (std::size_t i = 0; i < likely_.size(); ++i) {
    if (i != first && most_[i] >= least) meet(i);
  }
  return leader;
}

/// A logit that few of `total` tokens below it have a Gumbel for.
inline float OpenDraws::dividing_logit(const Race& race, const Leader& leader, std::size_t total) {
  const double lucky = std::min(kLuckyTokens, static_cast<double>(race.head.rows()) / kLuckyShare);
  const double log_weight = leader.score + std::log(lucky / static_cast<double>(total));
  return static_cast<float>(race.best + race.temperature * log_weight);
}

inline std::optional<OpenDraws::Drawn> OpenDraws::draw(Race race, QueryOptions& query) {
  if (!race.head.likely_tokens(race.h, kLikelyTokens, query, race.workspace, likely_)) return std::nullopt;
  query.same_context = true;
  if (likely_.empty()) return std::nullopt;
  met_ += likely_.size();
  const float best = std::min_element(likely_.begin(), likely_.end(), ranks_before)->logit;
  race.best = static_cast<double>(best);
  const double likely = weigh_likely(race);
  Leader leader = meet_likely(race);
  const std::size_t total = race.head.count_allowed(query.allowed);
  const float divides = dividing_logit(race, leader, total);
  if (!race.head.tokens_reaching(race.h, divides, query, race.workspace, reaching_)) return std::nullopt;
  const Sought sought = {.lowest = kNoScore,
                         .score = leader.score,
                         .last = {std::numeric_limits<float>::infinity(), 0},
                         .highest = divides,
                         .most = race.head.rows()};
  if (!rivals_.find(race, sought, reaching_)) return std::nullopt;
  if (const std::optional<Rival> rival = rivals_.next()) leader.offer(rival->score, rival->token);
  const auto others = static_cast<double>(total - std::min(total, reaching_.ids.size()));
  const double most = rivals_.named_weight() + others * std::exp(race.log_weight(divides));
  return Drawn{leader.token, best, {likely, std::max(likely, most)}};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
